#include "ops/cross_entropy.h"

#include <cmath>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "engine/philox.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"

namespace sluice {
namespace {

using ops::cross_entropy;
using ops::CrossEntropyOptions;
using ops::Reduction;
using testing::near;

constexpr TensorOptions kF64{DType::f64, {}};
constexpr Reduction kReductions[] = {Reduction::mean, Reduction::sum, Reduction::none};

// Targets in [-1, classes), the first one kept.
std::vector<int64_t> some_targets(int64_t rows, int64_t classes) {
  std::vector<int64_t> targets;
  for (int64_t i = 0; i < rows; ++i) {
    const auto word = philox4x32({5, 0}, uint64_t(i));
    targets.push_back(i == 0 ? classes - 1 : int64_t(word[0] % uint64_t(classes + 1)) - 1);
  }
  return targets;
}

Shape without_last(const Shape& shape) {
  return Shape(shape.dims().first(size_t(shape.rank() - 1)));
}

struct Truth {
  std::vector<double> losses;
  double kept = 0;
};

Truth reference(const Tensor& logits, const std::vector<int64_t>& targets, double z_loss) {
  const auto x = testing::values_of(logits);
  const size_t classes = size_t(logits.size(-1));
  Truth truth;
  for (size_t row = 0; row < targets.size(); ++row) {
    double sum = 0;
    for (size_t v = 0; v < classes; ++v) sum += std::exp(x[row * classes + v]);
    const double lse = std::log(sum);
    const bool kept = targets[row] >= 0;
    truth.kept += kept;
    truth.losses.push_back(
        kept ? lse - x[row * classes + size_t(targets[row])] + z_loss * lse * lse : 0);
  }
  return truth;
}

// One class, below a vector, exact vectors, ragged vectors; one row and several chunks of rows.
const Shape kShapes[] = {{1}, {1, 2}, {3, 5}, {2, 3, 16}, {4, 70}, {2, 260, 67}};

TEST(CrossEntropy, MatchesItsFormulaAndItsFiniteDifferences) {
  for (const Shape& shape : kShapes) {
    const Tensor logits = randn(shape, 1, 0, kF64);
    const int64_t classes = shape[shape.rank() - 1];
    const auto targets = some_targets(shape.numel() / classes, classes);
    const Tensor ids = from_values(targets, without_last(shape));
    for (const double z_loss : {0.0, 0.3}) {
      const Truth truth = reference(logits, targets, z_loss);
      double sum = 0;
      for (const double loss : truth.losses) sum += loss;
      for (const Reduction reduction : kReductions) {
        const CrossEntropyOptions options{.z_loss = z_loss, .reduction = reduction};
        const auto expected = reduction == Reduction::none  ? truth.losses
                              : reduction == Reduction::sum ? std::vector{sum}
                                                            : std::vector{sum / truth.kept};
        const auto tolerance = testing::tolerance_for(DType::f64, shape.numel());
        EXPECT_TRUE(near(cross_entropy(logits, ids, options), expected, tolerance));
        EXPECT_TRUE(
            near(cross_entropy(logits, to_dtype(ids, DType::i32), options), expected, tolerance));
        EXPECT_TRUE(testing::gradcheck_passes(
            [&](const auto& in) { return std::vector{cross_entropy(in[0], ids, options)}; },
            {logits}));
      }
    }
  }
}

TEST(CrossEntropy, F32AndThreadCountsAgree) {
  for (const Shape& shape : kShapes) {
    const int64_t classes = shape[shape.rank() - 1];
    const Tensor ids =
        from_values(some_targets(shape.numel() / classes, classes), without_last(shape));
    for (const Reduction reduction : kReductions) {
      const auto function = [&](const std::vector<Tensor>& in) {
        return std::vector{cross_entropy(in[0], ids, {.z_loss = 1e-2, .reduction = reduction})};
      };
      const std::vector<Tensor> inputs{randn(shape, 2, 0, kF64)};
      const auto run = testing::run_with_grads(function, inputs, DType::f32, DType::f32);
      const auto truth = testing::run_with_grads(function, inputs, DType::f64, DType::f32);
      const auto tolerance = testing::tolerance_for(DType::f32, classes);
      EXPECT_TRUE(near(run.outputs[0], truth.outputs[0], tolerance));
      EXPECT_TRUE(near(run.grads[0], truth.grads[0], tolerance));
      testing::expect_same_bits_for_any_threads(function, inputs);
    }
  }
}

// The loss of bf16 logits is f32: eight bits would hide what a training step gains.
TEST(CrossEntropy, Bf16LogitsGiveAnF32Loss) {
  for (const Shape& shape : kShapes) {
    const int64_t classes = shape[shape.rank() - 1];
    const Tensor ids =
        from_values(some_targets(shape.numel() / classes, classes), without_last(shape));
    const Tensor logits = to_dtype(randn(shape, 2, 0, kF64), DType::bf16);
    const auto run = [&](DType dtype) {
      const Tensor leaf = autograd::set_requires_grad(clone(to_dtype(logits, dtype)));
      const Tensor loss = cross_entropy(leaf, ids, {.z_loss = 1e-2, .reduction = Reduction::sum});
      autograd::backward(loss);
      return std::pair{loss, autograd::grad(leaf)};
    };
    const auto [loss, grad] = run(DType::bf16);
    const auto [true_loss, true_grad] = run(DType::f64);
    EXPECT_EQ(loss.dtype(), DType::f32);
    EXPECT_TRUE(near(loss, true_loss, testing::tolerance_for(DType::f32, shape.numel())));
    EXPECT_EQ(grad.dtype(), DType::bf16);
    EXPECT_TRUE(
        testing::bf16_rows(grad, testing::values_of(true_grad), to_dtype(true_grad, DType::bf16)));
  }
}

TEST(CrossEntropy, IgnoredRowsTakeNoPart) {
  const Tensor logits = autograd::set_requires_grad(full({3, 4}, 0));
  float* x = logits.data<float>();
  for (int v = 0; v < 4; ++v) x[4 + v] = NAN;
  const Tensor ids = from_values(std::vector<int64_t>{2, 7, 0}, {3});
  const Tensor loss = cross_entropy(logits, ids, {.ignore_index = 7});
  EXPECT_FLOAT_EQ(loss.item<float>(), std::log(4.0f));
  autograd::backward(loss);
  const auto grad = autograd::grad(logits).to_vector<float>();
  EXPECT_FLOAT_EQ(grad[2], (0.25f - 1) / 2);
  for (int v = 0; v < 4; ++v) EXPECT_EQ(grad[size_t(4 + v)], 0);
}

TEST(CrossEntropy, NothingKeptGivesZero) {
  for (const Reduction reduction : kReductions) {
    const Tensor logits = autograd::set_requires_grad(randn({2, 3}, 1));
    const Tensor ids = from_values(std::vector<int64_t>{-1, -1}, {2});
    const Tensor loss = cross_entropy(logits, ids, {.reduction = reduction});
    for (const float value : loss.to_vector<float>()) EXPECT_EQ(value, 0);
    autograd::backward(loss, full(loss.shape(), 1));
    EXPECT_EQ(autograd::grad(logits).to_vector<float>(), std::vector<float>(6, 0));
  }
  EXPECT_EQ(cross_entropy(empty({0, 3}), empty({0}, {DType::i32, {}})).item<float>(), 0);
}

TEST(CrossEntropy, ExtremeLogits) {
  constexpr float kInfinity = INFINITY;
  const Tensor logits = autograd::set_requires_grad(from_values(
      std::vector<float>{
          1e30f, 0, -1e30f, -kInfinity, 3, -kInfinity, -kInfinity, -kInfinity, -kInfinity},
      {3, 3}));
  const Tensor ids = from_values(std::vector<int64_t>{0, 1, 2}, {3});
  const Tensor losses = cross_entropy(logits, ids, {.reduction = Reduction::none});
  EXPECT_EQ(losses.to_vector<float>(), (std::vector<float>{0, 0, kInfinity}));
  autograd::backward(losses, full({3}, 1));
  EXPECT_EQ(autograd::grad(logits).to_vector<float>(), std::vector<float>(9, 0));
  // NaN is never hidden by the maximum.
  for (const int place : {0, 1, 2}) {
    const Tensor row = full({1, 3}, -kInfinity);
    row.data<float>()[place] = NAN;
    EXPECT_TRUE(
        std::isnan(cross_entropy(row, from_values(std::vector<int64_t>{0}, {1})).item<float>()));
  }
}

// Adding a constant to a row changes nothing without z-loss.
TEST(CrossEntropy, ShiftInvariantWithoutZLoss) {
  const Tensor logits = randn({5, 40}, 3, 0, kF64);
  const Tensor shifted = clone(logits);
  for (int64_t i = 0; i < shifted.numel(); ++i) shifted.data<double>()[i] += 1000;
  const Tensor ids = from_values(some_targets(5, 40), {5});
  EXPECT_TRUE(near(cross_entropy(shifted, ids), cross_entropy(logits, ids), {1e-10, 0}));
}

TEST(CrossEntropy, StridedLogits) {
  const Tensor wide = randn({4, 3, 10}, 4, 0, kF64);
  const Tensor logits = wide.alias({3, 4, 6}, {10, 30, 1}, 2);
  const Tensor ids = from_values(some_targets(12, 6), {3, 4});
  EXPECT_TRUE(testing::bit_equal(cross_entropy(logits, ids), cross_entropy(clone(logits), ids)));
}

TEST(CrossEntropy, RefusesWhatDoesNotFit) {
  const Tensor logits = randn({3, 4}, 1);
  const auto ids = [](std::vector<int64_t> values) {
    return from_values(values, {int64_t(values.size())});
  };
  SLUICE_EXPECT_THROW(
      cross_entropy(logits, ids({0, -1, 4})),
      ArgumentError,
      "targets must be in [0, 4) or -1, got 4 in row 2");
  SLUICE_EXPECT_THROW(cross_entropy(logits, ids({-2, 0, 0})), ArgumentError, "got -2 in row 0");
  SLUICE_EXPECT_THROW(
      cross_entropy(logits, ids({0, 1})), ShapeError, "targets must have shape (3)");
  SLUICE_EXPECT_THROW(cross_entropy(randn({}, 1), ids({0})), ShapeError, "rank >= 1");
  SLUICE_EXPECT_THROW(cross_entropy(logits, logits), DTypeError, "targets must be i32 or i64");
  SLUICE_EXPECT_THROW(cross_entropy(ids({0}), ids({0})), DTypeError, "logits must be floating");
  SLUICE_EXPECT_THROW(
      cross_entropy(logits, ids({0, 1, 2}), {.z_loss = -1}), ArgumentError, "z_loss must be >= 0");
  SLUICE_EXPECT_THROW(
      cross_entropy(logits, empty({3}, {DType::i32, {DeviceType::simt}})),
      DeviceError,
      "targets must be on cpu");
}

}  // namespace
}  // namespace sluice
