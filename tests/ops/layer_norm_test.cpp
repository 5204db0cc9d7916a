#include "ops/layer_norm.h"

#include <cmath>

#include <gtest/gtest.h>

#include "engine/errors.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"

namespace sluice {
namespace {

using ops::layer_norm;
using testing::near;

constexpr TensorOptions kF64{DType::f64, {}};

std::vector<double> reference(
    const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  std::vector<double> values = testing::values_of(x);
  const size_t width = size_t(x.size(-1));
  for (size_t row = 0; row < values.size(); row += width) {
    double mean = 0;
    double variance = 0;
    for (size_t c = 0; c < width; ++c) mean += values[row + c] / double(width);
    for (size_t c = 0; c < width; ++c) {
      variance += (values[row + c] - mean) * (values[row + c] - mean) / double(width);
    }
    for (size_t c = 0; c < width; ++c) {
      const double scale = weight.defined() ? weight.data<double>()[c] : 1;
      const double shift = bias.defined() ? bias.data<double>()[c] : 0;
      values[row + c] = (values[row + c] - mean) / std::sqrt(variance + eps) * scale + shift;
    }
  }
  return values;
}

TEST(LayerNorm, MatchesItsFormulaAndItsFiniteDifferences) {
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 5}, Shape{2, 3, 16}, Shape{2, 7, 51}}) {
    const int64_t width = shape[shape.rank() - 1];
    const Tensor x = randn(shape, 1, 0, kF64);
    const Tensor weight = randn({width}, 1, 1, kF64);
    const Tensor bias = randn({width}, 1, 2, kF64);
    const double eps = 1e-2;
    for (const auto& [w, b] : {std::pair{weight, bias}, {weight, Tensor()}, {Tensor(), bias}}) {
      EXPECT_TRUE(near(layer_norm(x, w, b, {eps}), reference(x, w, b, eps), {1e-12, 1e-12}));
    }
    EXPECT_TRUE(testing::gradcheck_passes(
        [&](const auto& in) { return std::vector{layer_norm(in[0], in[1], in[2], {eps})}; },
        {x, weight, bias}));
    EXPECT_TRUE(testing::gradcheck_passes(
        [&](const auto& in) { return std::vector{layer_norm(in[0], Tensor(), in[1], {eps})}; },
        {x, bias}));
  }
}

TEST(LayerNorm, DTypesAndThreadCountsAgree) {
  for (const Shape& shape : {Shape{1, 7}, Shape{3, 64}, Shape{2, 301, 130}}) {
    const int64_t width = shape[shape.rank() - 1];
    const std::vector<Tensor> inputs{
        randn(shape, 2, 0, kF64), randn({width}, 2, 1, kF64), randn({width}, 2, 2, kF64)};
    const auto function = [](const std::vector<Tensor>& in) {
      return std::vector{layer_norm(in[0], in[1], in[2])};
    };
    testing::expect_dtypes_agree(function, inputs, shape.numel());
    testing::expect_same_bits_for_any_threads(function, inputs);
  }
}

// E[x^2] - E[x]^2 would lose every digit of the variance here.
TEST(LayerNorm, LargeMeanKeepsTheVariance) {
  std::vector<float> values(300);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 8192 + (i % 2 == 0 ? 1.0f : -1.0f);
  const Tensor out = layer_norm(from_values(values, {1, 300}), {}, {}, {.eps = 0});
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_FLOAT_EQ(out.data<float>()[i], i % 2 == 0 ? 1.0f : -1.0f);
  }
}

TEST(LayerNorm, NoRows) {
  EXPECT_EQ(layer_norm(empty({0, 8}), empty({8}), empty({8})).numel(), 0);
  EXPECT_EQ(layer_norm(empty({3, 0}), {}, {}).numel(), 0);
}

TEST(LayerNorm, RefusesWhatDoesNotFit) {
  const Tensor x = randn({2, 4}, 5);
  SLUICE_EXPECT_THROW(layer_norm(randn({}, 5), {}, {}), ShapeError, "x must have rank >= 1");
  SLUICE_EXPECT_THROW(layer_norm(x, randn({5}, 5), {}), ShapeError, "weight must have shape (4)");
  SLUICE_EXPECT_THROW(layer_norm(x, {}, randn({1}, 5)), ShapeError, "bias must have shape (4)");
  SLUICE_EXPECT_THROW(layer_norm(x, {}, randn({4}, 5, 0, kF64)), DTypeError, "bias must be f32");
  SLUICE_EXPECT_THROW(
      layer_norm(empty({4}, {DType::i32, {}}), {}, {}), DTypeError, "x must be floating");
  SLUICE_EXPECT_THROW(layer_norm(x, {}, {}, {.eps = -1}), ArgumentError, "eps must be >= 0");
  const Tensor elsewhere = empty({4}, {DType::f32, {DeviceType::simt}});
  SLUICE_EXPECT_THROW(layer_norm(x, elsewhere, {}), DeviceError, "weight must be on cpu");
}

}  // namespace
}  // namespace sluice
