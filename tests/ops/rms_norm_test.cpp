#include "ops/rms_norm.h"

#include <cmath>

#include <gtest/gtest.h>

#include "engine/errors.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"

namespace sluice {
namespace {

using ops::rms_norm;
using testing::near;

constexpr TensorOptions kF64{DType::f64, {}};

std::vector<double> reference(const Tensor& x, const Tensor& weight, ops::RmsNormOptions options) {
  std::vector<double> values = testing::values_of(x);
  const size_t width = size_t(x.size(-1));
  for (size_t row = 0; row < values.size(); row += width) {
    double square = 0;
    for (size_t c = 0; c < width; ++c) square += values[row + c] * values[row + c];
    const double scale = 1 / std::sqrt(square / double(width) + options.eps);
    for (size_t c = 0; c < width; ++c) {
      double factor = scale;
      if (weight.defined()) factor *= weight.data<double>()[c] + (options.zero_centred ? 1 : 0);
      values[row + c] *= factor;
    }
  }
  return values;
}

struct Case {
  Shape x;
  ops::RmsNormOptions options;
};

// Widths below, at and above a vector, ragged and not; one row, and more rows than a chunk holds.
const Case kCases[] = {
    {{1, 1}, {}},
    {{3, 5}, {.eps = 1e-2}},
    {{2, 3, 16}, {.zero_centred = true}},
    {{2, 7, 51}, {.eps = 1e-5, .zero_centred = true}},
    {{4, 96}, {}},
};

TEST(RmsNorm, MatchesItsFormulaAndItsFiniteDifferences) {
  for (const Case& c : kCases) {
    const Tensor x = randn(c.x, 1, 0, kF64);
    const Tensor weight = randn({c.x[c.x.rank() - 1]}, 1, 1, kF64);
    EXPECT_TRUE(
        near(rms_norm(x, weight, c.options), reference(x, weight, c.options), {1e-12, 1e-12}));
    EXPECT_TRUE(near(rms_norm(x, {}, c.options), reference(x, {}, c.options), {1e-12, 1e-12}));
    EXPECT_TRUE(testing::gradcheck_passes(
        [&](const auto& in) { return std::vector{rms_norm(in[0], in[1], c.options)}; },
        {x, weight}));
    EXPECT_TRUE(testing::gradcheck_passes(
        [&](const auto& in) { return std::vector{rms_norm(in[0], Tensor(), c.options)}; }, {x}));
  }
}

TEST(RmsNorm, DTypesAndThreadCountsAgree) {
  for (const Shape& shape : {Shape{1, 7}, Shape{3, 64}, Shape{2, 301, 130}}) {
    const std::vector<Tensor> inputs{
        randn(shape, 2, 0, kF64), randn({shape[shape.rank() - 1]}, 2, 1, kF64)};
    const auto function = [](const std::vector<Tensor>& in) {
      return std::vector{rms_norm(in[0], in[1], {.zero_centred = true})};
    };
    testing::expect_dtypes_agree(function, inputs, shape.numel());
    testing::expect_same_bits_for_any_threads(function, inputs);
  }
}

TEST(RmsNorm, StridedInputAndNoRows) {
  const Tensor memory = randn({6, 4}, 3, 0, kF64);
  const Tensor transposed = memory.alias({4, 6}, {1, 4}, 0);
  EXPECT_TRUE(testing::bit_equal(rms_norm(transposed, {}), rms_norm(clone(transposed), {})));
  EXPECT_EQ(rms_norm(empty({0, 8}), empty({8})).numel(), 0);
  EXPECT_EQ(rms_norm(empty({3, 0}), empty({0})).numel(), 0);
}

TEST(RmsNorm, ScaleOfTheInputCancels) {
  const Tensor x = randn({5, 40}, 4, 0, kF64);
  std::vector<double> scaled = testing::values_of(x);
  for (double& value : scaled) value *= 1024;
  const Tensor big = from_values(scaled, x.shape());
  EXPECT_TRUE(near(rms_norm(big, {}, {.eps = 0}), rms_norm(x, {}, {.eps = 0}), {1e-14, 1e-14}));
}

TEST(RmsNorm, RefusesWhatDoesNotFit) {
  const Tensor x = randn({2, 4}, 5);
  SLUICE_EXPECT_THROW(rms_norm(randn({}, 5), {}), ShapeError, "x must have rank >= 1");
  SLUICE_EXPECT_THROW(rms_norm(x, randn({5}, 5)), ShapeError, "weight must have shape (4)");
  SLUICE_EXPECT_THROW(rms_norm(x, randn({4}, 5, 0, kF64)), DTypeError, "weight must be f32");
  SLUICE_EXPECT_THROW(rms_norm(empty({4}, {DType::i32, {}}), {}), DTypeError, "x must be floating");
  SLUICE_EXPECT_THROW(rms_norm(x, {}, {.eps = -1}), ArgumentError, "eps must be >= 0");
  const Tensor elsewhere = empty({4}, {DType::f32, {DeviceType::simt}});
  SLUICE_EXPECT_THROW(rms_norm(x, elsewhere), DeviceError, "weight must be on cpu");
}

}  // namespace
}  // namespace sluice
