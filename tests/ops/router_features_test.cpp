#include "ops/router_features.h"

#include <cmath>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"
#include "tests/support/strided.h"

namespace sluice {
namespace {

using ops::router_features;
using testing::near;

constexpr TensorOptions kF64{DType::f64, {}};

// Widths below, at and above a vector, ragged; more rows than a chunk holds; nothing.
const Shape kShapes[] = {{1, 1, 1}, {2, 3, 5}, {1, 4, 16}, {3, 7, 51}, {2, 90, 130}, {2, 0, 4}};

std::vector<double> reference(
    const Tensor& residual, const Tensor& normed, const ops::RouterFeaturesOptions& options) {
  const auto x = residual.to_vector<double>();
  const auto u = normed.to_vector<double>();
  const auto C = size_t(normed.size(2));
  std::vector<double> out;
  for (size_t row = 0; row * C < u.size(); ++row) {
    double square = 0;
    for (size_t c = 0; c < C; ++c) square += x[row * C + c] * x[row * C + c];
    out.insert(out.end(), u.begin() + long(row * C), u.begin() + long((row + 1) * C));
    out.push_back(std::log(square / double(C) + 1e-12) / 2);
    const auto t = double(row % size_t(normed.size(1)));
    out.push_back(std::log(1 + double(options.offset) + t) / std::log(1 + double(options.context)));
  }
  return out;
}

TEST(RouterFeatures, MatchesItsFormula) {
  for (const Shape& shape : kShapes) {
    for (const ops::RouterFeaturesOptions options :
         {ops::RouterFeaturesOptions{}, {.offset = 37, .context = 5}}) {
      const Tensor residual = randn(shape, 1, 0, kF64);
      const Tensor normed = randn(shape, 1, 1, kF64);
      const Tensor out = router_features(residual, normed, options);
      EXPECT_EQ(out.shape(), Shape({shape[0], shape[1], shape[2] + 2}));
      EXPECT_TRUE(near(out, reference(residual, normed, options), {1e-13, 1e-13}));
    }
  }
}

TEST(RouterFeatures, TheGradientReachesTheNormedRowOnly) {
  const Tensor residual = randn({2, 3, 5}, 2, 0, kF64);
  EXPECT_TRUE(testing::gradcheck_passes(
      [&](const auto& in) { return std::vector{router_features(residual, in[0])}; },
      {randn({2, 3, 5}, 2, 1, kF64)}));
  const Tensor watched = autograd::set_requires_grad(clone(residual));
  EXPECT_FALSE(autograd::requires_grad(router_features(watched, residual)));
}

TEST(RouterFeatures, DTypesAndThreadCountsAgree) {
  const Tensor residual = randn({2, 150, 130}, 3, 0, kF64);
  const auto function = [&](const std::vector<Tensor>& in) {
    return std::vector{router_features(to_dtype(residual, in[0].dtype()), in[0])};
  };
  const std::vector<Tensor> inputs{randn({2, 150, 130}, 3, 1, kF64)};
  testing::expect_dtypes_agree(function, inputs, 130);
  testing::expect_same_bits_for_any_threads(function, inputs);
}

// A token decoded alone must take the route that it takes in a sequence.
TEST(RouterFeatures, ARowDoesNotDependOnWhereTheSequenceIsCut) {
  const Tensor x = randn({1, 40, 20}, 4);
  const auto whole = router_features(x, x).to_vector<float>();
  for (int64_t t = 0; t < 40; ++t) {
    const Tensor row = x.alias({1, 1, 20}, {800, 20, 1}, t * 20);
    const auto alone = router_features(row, row, {.offset = t}).to_vector<float>();
    for (size_t c = 0; c < 22; ++c) EXPECT_EQ(alone[c], whole[size_t(t) * 22 + c]);
  }
}

TEST(RouterFeatures, StridedInputAndARowOfZeros) {
  const Tensor x = randn({2, 3, 17}, 5, 0, kF64);
  EXPECT_TRUE(testing::bit_equal(
      router_features(testing::strided(x), testing::strided(x)), router_features(x, x)));
  const Tensor zero = zeros({1, 1, 4}, kF64);
  EXPECT_NEAR(router_features(zero, zero).to_vector<double>()[4], std::log(1e-12) / 2, 1e-12);
}

TEST(RouterFeatures, RefusesWhatDoesNotFit) {
  const Tensor x = randn({1, 2, 4}, 6);
  SLUICE_EXPECT_THROW(router_features(x, randn({2, 4}, 6)), ShapeError, "must be (B, T, C)");
  SLUICE_EXPECT_THROW(
      router_features(randn({1, 2, 5}, 6), x), ShapeError, "residual must have shape (1, 2, 4)");
  SLUICE_EXPECT_THROW(
      router_features(randn({1, 2, 4}, 6, 0, kF64), x), DTypeError, "residual must be f32");
  SLUICE_EXPECT_THROW(router_features(x, x, {.offset = -1}), ArgumentError, "offset must be >= 0");
  SLUICE_EXPECT_THROW(router_features(x, x, {.context = 0}), ArgumentError, "context must be >= 1");
}

}  // namespace
}  // namespace sluice
