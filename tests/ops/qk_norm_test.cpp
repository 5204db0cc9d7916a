#include "ops/qk_norm.h"

#include <cmath>

#include <gtest/gtest.h>

#include "engine/errors.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"

namespace sluice {
namespace {

using ops::qk_norm;
using testing::near;

constexpr TensorOptions kF64{DType::f64, {}};

std::vector<double> reference(const Tensor& x, const Tensor& weight, ops::QkNormOptions options) {
  std::vector<double> values = testing::values_of(x);
  const size_t width = size_t(x.size(-1));
  const size_t heads = size_t(x.size(1));
  const size_t tokens = size_t(x.size(2));
  for (size_t row = 0; row < values.size() / width; ++row) {
    double* row_values = values.data() + row * width;
    double square = 0;
    for (size_t d = 0; d < width; ++d) square += row_values[d] * row_values[d];
    const double scale = 1 / std::sqrt(square / double(width) + options.eps);
    const size_t head = row / tokens % heads;
    for (size_t d = 0; d < width; ++d) {
      double factor = 1;
      if (weight.defined()) {
        factor = weight.data<double>()[(weight.rank() == 2 ? head * width : 0) + d];
        if (options.zero_centred) factor += 1;
      }
      row_values[d] *= scale * factor;
    }
  }
  return values;
}

// (B, H, T, D): one token, ragged widths, several heads and batches.
const Shape kShapes[] = {{1, 1, 1, 1}, {1, 2, 3, 5}, {2, 3, 4, 16}, {2, 2, 5, 33}};

TEST(QkNorm, MatchesItsFormulaAndItsFiniteDifferences) {
  for (const Shape& shape : kShapes) {
    const Tensor x = randn(shape, 1, 0, kF64);
    for (const Shape& weights : {Shape{shape[1], shape[3]}, Shape{shape[3]}}) {
      const Tensor weight = randn(weights, 1, 1, kF64);
      const ops::QkNormOptions options{.eps = 1e-3, .zero_centred = weights.rank() == 1};
      EXPECT_TRUE(near(qk_norm(x, weight, options), reference(x, weight, options), {1e-12, 1e-12}));
      EXPECT_TRUE(testing::gradcheck_passes(
          [&](const auto& in) { return std::vector{qk_norm(in[0], in[1], options)}; },
          {x, weight}));
    }
    EXPECT_TRUE(near(qk_norm(x, {}), reference(x, {}, {}), {1e-12, 1e-12}));
  }
}

TEST(QkNorm, DTypesAndThreadCountsAgree) {
  for (const Shape& shape : {Shape{1, 2, 1, 7}, Shape{2, 3, 150, 32}, Shape{2, 2, 300, 33}}) {
    const std::vector<Tensor> inputs{
        randn(shape, 2, 0, kF64), randn({shape[1], shape[3]}, 2, 1, kF64)};
    const auto function = [](const std::vector<Tensor>& in) {
      return std::vector{qk_norm(in[0], in[1])};
    };
    testing::expect_dtypes_agree(function, inputs, shape.numel());
    testing::expect_same_bits_for_any_threads(function, inputs);
  }
}

// Queries arrive as a slice of one (B, T, 3C) projection; the result permutes back for free.
TEST(QkNorm, TakesStridedViewsAndReturnsTokenMajorMemory) {
  const int64_t B = 2, H = 3, T = 4, D = 8;
  const Tensor projection = randn({B, T, 3 * H * D}, 3, 0, kF64);
  const Tensor q = projection.alias({B, H, T, D}, {T * 3 * H * D, D, 3 * H * D, 1}, H * D);
  const Tensor weight = randn({H, D}, 3, 1, kF64);
  const Tensor out = qk_norm(q, weight);
  EXPECT_TRUE(testing::bit_equal(out, qk_norm(clone(q), weight)));
  EXPECT_TRUE(out.alias({B, T, H * D}, {T * H * D, H * D, 1}, 0).contiguous());
  EXPECT_EQ(out.stride(2), H * D);
  const Tensor flipped = q.alias({B, H, T, D}, {T * 3 * H * D, D, 3 * H * D, -1}, H * D + D - 1);
  EXPECT_TRUE(testing::bit_equal(qk_norm(flipped, weight), qk_norm(clone(flipped), weight)));
}

TEST(QkNorm, NoTokens) { EXPECT_EQ(qk_norm(empty({2, 3, 0, 8}), empty({3, 8})).numel(), 0); }

TEST(QkNorm, RefusesWhatDoesNotFit) {
  const Tensor x = randn({1, 2, 3, 4}, 5);
  SLUICE_EXPECT_THROW(qk_norm(randn({2, 3, 4}, 5), {}), ShapeError, "x must have rank 4");
  SLUICE_EXPECT_THROW(qk_norm(x, randn({3, 4}, 5)), ShapeError, "weight must have shape (2, 4)");
  SLUICE_EXPECT_THROW(qk_norm(x, randn({5}, 5)), ShapeError, "weight must have shape (4)");
  SLUICE_EXPECT_THROW(qk_norm(x, randn({4}, 5, 0, kF64)), DTypeError, "weight must be f32");
  SLUICE_EXPECT_THROW(
      qk_norm(empty({1, 2, 3, 4}, {DType::u8, {}}), {}), DTypeError, "x must be floating");
  SLUICE_EXPECT_THROW(qk_norm(x, {}, {.eps = -1}), ArgumentError, "eps must be >= 0");
  const Tensor elsewhere = empty({4}, {DType::f32, {DeviceType::simt}});
  SLUICE_EXPECT_THROW(qk_norm(x, elsewhere), DeviceError, "weight must be on cpu");
}

}  // namespace
}  // namespace sluice
