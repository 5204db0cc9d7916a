#include "ops/adamw.h"

#include <cmath>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/context.h"
#include "engine/errors.h"
#include "tests/support/compare.h"

namespace sluice {
namespace {

using ops::adamw_step;
using ops::AdamWOptions;
using ops::AdamWParam;
using testing::near;

AdamWParam fresh(const Shape& shape, DType dtype, uint64_t seed) {
  const DType moments = dtype == DType::f64 ? DType::f64 : DType::f32;
  return {
      to_dtype(randn(shape, seed, 0, {DType::f64, {}}), dtype),
      to_dtype(randn(shape, seed, 1, {DType::f64, {}}), dtype),
      zeros(shape, {moments, {}}),
      zeros(shape, {moments, {}})};
}

// One step of the equations in f64, in place.
struct Reference {
  std::vector<double> param, grad, m, v;

  explicit Reference(const AdamWParam& item)
      : param(testing::values_of(item.param)),
        grad(testing::values_of(item.grad)),
        m(param.size()),
        v(param.size()) {}

  void step(const AdamWOptions& o) {
    for (size_t i = 0; i < param.size(); ++i) {
      const double g = o.grad_scale * grad[i];
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * g * g;
      const double mh = m[i] / (1 - std::pow(o.beta1, double(o.step)));
      const double vh = v[i] / (1 - std::pow(o.beta2, double(o.step)));
      param[i] -= o.lr * (mh / (std::sqrt(vh) + o.eps) + o.weight_decay * param[i]);
    }
  }
};

const AdamWOptions kOptions{
    .lr = 1e-2, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.3, .grad_scale = 0.7};

// A scalar, below a chunk, an exact chunk and several ragged ones, in one call.
std::vector<AdamWParam> several(DType dtype) {
  std::vector<AdamWParam> params;
  for (const Shape& shape : {Shape{}, Shape{3, 5}, Shape{0}, Shape{16384}, Shape{7, 7001}}) {
    params.push_back(fresh(shape, dtype, params.size() + 1));
  }
  return params;
}

TEST(AdamW, FollowsItsEquationsForThreeSteps) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const auto params = several(dtype);
    std::vector<Reference> references(params.begin(), params.end());
    AdamWOptions options = kOptions;
    for (options.step = 1; options.step <= 3; ++options.step) {
      adamw_step(params, options);
      for (Reference& reference : references) reference.step(options);
    }
    for (size_t i = 0; i < params.size(); ++i) {
      const auto tolerance = testing::tolerance_for(dtype);
      EXPECT_TRUE(near(params[i].param, references[i].param, tolerance));
      EXPECT_TRUE(near(params[i].m, references[i].m, tolerance));
      EXPECT_TRUE(near(params[i].v, references[i].v, tolerance));
    }
  }
}

// In bf16 only the result is rounded: moments stay f32.
TEST(AdamW, Bf16ParametersAreRoundedOnce) {
  const auto params = several(DType::bf16);
  std::vector<Reference> references(params.begin(), params.end());
  adamw_step(params, kOptions);
  for (size_t i = 0; i < params.size(); ++i) {
    references[i].step(kOptions);
    const Tensor truth = from_values(references[i].param, params[i].param.shape());
    EXPECT_TRUE(
        testing::bf16_rows(params[i].param, references[i].param, to_dtype(truth, DType::bf16)));
    EXPECT_TRUE(near(params[i].m, references[i].m, testing::tolerance_for(DType::f32)));
    EXPECT_TRUE(near(params[i].v, references[i].v, testing::tolerance_for(DType::f32)));
  }
}

// The first step moves each parameter by lr in the direction of its gradient, whatever its size.
TEST(AdamW, FirstStepHasTheSizeOfTheLearningRate) {
  const AdamWParam item = fresh({100}, DType::f64, 1);
  const Tensor before = clone(item.param);
  adamw_step({&item, 1}, {.lr = 0.1, .eps = 1e-30});
  for (int64_t i = 0; i < 100; ++i) {
    const double moved = item.param.data<double>()[i] - before.data<double>()[i];
    EXPECT_NEAR(moved, item.grad.data<double>()[i] > 0 ? -0.1 : 0.1, 1e-12);
  }
}

TEST(AdamW, SameBitsForAnyThreadsAndGrouping) {
  const auto together = several(DType::f32);
  const auto alone = several(DType::f32);
  ThreadPool one(1), three(3);
  CpuContext narrow{one}, wide{three};
  {
    const ContextScope scope(wide);
    adamw_step(together, kOptions);
  }
  const ContextScope scope(narrow);
  for (size_t i = 0; i < alone.size(); ++i) {
    adamw_step({&alone[i], 1}, kOptions);
    EXPECT_TRUE(testing::bit_equal(together[i].param, alone[i].param));
    EXPECT_TRUE(testing::bit_equal(together[i].v, alone[i].v));
  }
}

TEST(AdamW, ParameterWithoutGradientIsLeftAlone) {
  AdamWParam item = fresh({4}, DType::f32, 1);
  item.grad = Tensor();
  const auto before = item.param.to_vector<float>();
  const auto version = item.param.storage()->version();
  adamw_step({&item, 1}, kOptions);
  EXPECT_EQ(item.param.to_vector<float>(), before);
  EXPECT_EQ(item.param.storage()->version(), version);
}

TEST(AdamW, StridedGradient) {
  const AdamWParam item = fresh({6, 4}, DType::f64, 1);
  AdamWParam turned = fresh({6, 4}, DType::f64, 1);
  const Tensor memory = empty({4, 6}, {DType::f64, {}});
  turned.grad = memory.alias({6, 4}, {1, 6}, 0);
  copy_into(turned.grad, item.grad);
  adamw_step({&item, 1}, kOptions);
  adamw_step({&turned, 1}, kOptions);
  EXPECT_TRUE(testing::bit_equal(turned.param, item.param));
}

// Writes are counted, so a graph that saved the old parameter refuses to run; leaves may be
// written.
TEST(AdamW, BumpsTheVersionOfALeaf) {
  const AdamWParam item = fresh({4}, DType::f32, 1);
  autograd::set_requires_grad(item.param);
  const auto version = item.param.storage()->version();
  adamw_step({&item, 1}, kOptions);
  EXPECT_GT(item.param.storage()->version(), version);
}

TEST(AdamW, RefusesWhatDoesNotFitAndChangesNothing) {
  const AdamWParam good = fresh({2, 3}, DType::f32, 1);
  const auto before = good.param.to_vector<float>();
  const auto refuse = [&](auto spoil) {
    std::vector<AdamWParam> params{good, fresh({2, 3}, DType::f32, 2)};
    spoil(params[1]);
    adamw_step(params, kOptions);
  };
  const auto options = [&](auto spoil) {
    AdamWOptions bad = kOptions;
    spoil(bad);
    adamw_step({&good, 1}, bad);
  };
  SLUICE_EXPECT_THROW(
      refuse([](auto& p) {
        p.m = zeros({3, 2});
      }),
      ShapeError,
      "m must have shape (2, 3)");
  SLUICE_EXPECT_THROW(
      refuse([](auto& p) { p.grad = zeros({6}); }), ShapeError, "grad must have shape (2, 3)");
  SLUICE_EXPECT_THROW(
      refuse([](auto& p) {
        p.v = zeros({2, 3}, {DType::f64, {}});
      }),
      DTypeError,
      "v must be f32");
  SLUICE_EXPECT_THROW(
      refuse([](auto& p) {
        p.grad = zeros({2, 3}, {DType::bf16, {}});
      }),
      DTypeError,
      "grad must be f32");
  SLUICE_EXPECT_THROW(refuse([](auto& p) { p.m = Tensor(); }), ArgumentError, "m must be a tensor");
  SLUICE_EXPECT_THROW(
      refuse([](auto& p) {
        p.param = zeros({3, 2}).alias({2, 3}, {1, 2}, 0);
      }),
      ArgumentError,
      "param must be contiguous");
  SLUICE_EXPECT_THROW(
      refuse([](auto& p) {
        p.v = zeros({2, 3}, {DType::f32, {DeviceType::simt}});
      }),
      DeviceError,
      "v must be on cpu");
  SLUICE_EXPECT_THROW(options([](auto& o) { o.lr = -1; }), ArgumentError, "lr must be >= 0");
  SLUICE_EXPECT_THROW(options([](auto& o) { o.beta1 = 1; }), ArgumentError, "beta1 must be in");
  SLUICE_EXPECT_THROW(options([](auto& o) { o.beta2 = -0.1; }), ArgumentError, "beta2 must be in");
  SLUICE_EXPECT_THROW(options([](auto& o) { o.eps = 0; }), ArgumentError, "eps must be > 0");
  SLUICE_EXPECT_THROW(
      options([](auto& o) { o.weight_decay = -1; }), ArgumentError, "weight_decay must be >= 0");
  SLUICE_EXPECT_THROW(options([](auto& o) { o.step = 0; }), ArgumentError, "step must be >= 1");
  SLUICE_EXPECT_THROW(
      options([](auto& o) { o.grad_scale = NAN; }), ArgumentError, "grad_scale must be finite");
  EXPECT_EQ(good.param.to_vector<float>(), before);
  adamw_step({}, kOptions);
}

}  // namespace
}  // namespace sluice
