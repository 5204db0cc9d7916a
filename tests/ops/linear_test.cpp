#include "ops/linear.h"

#include <cmath>

#include <gtest/gtest.h>

#include "engine/errors.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"

namespace sluice {
namespace {

using ops::Activation;
using ops::linear;
using testing::near;

constexpr TensorOptions kF64{DType::f64, {}};
constexpr Activation kActivations[] = {
    Activation::none, Activation::gelu, Activation::silu, Activation::relu};

double apply(Activation activation, double y) {
  switch (activation) {
    case Activation::none:
      break;
    case Activation::gelu:
      return 0.5 * y * (1 + std::erf(y / std::sqrt(2.0)));
    case Activation::silu:
      return y / (1 + std::exp(-y));
    case Activation::relu:
      return std::max(y, 0.0);
  }
  return y;
}

std::vector<double> reference(
    const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation) {
  const auto xs = testing::values_of(x);
  const auto ws = testing::values_of(weight);
  const size_t k = size_t(weight.size(1)), n = size_t(weight.size(0));
  const size_t m = size_t(x.numel() / x.size(-1));
  std::vector<double> out;
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      double sum = bias.defined() ? bias.data<double>()[j] : 0;
      for (size_t q = 0; q < k; ++q) sum += xs[i * k + q] * ws[j * k + q];
      out.push_back(apply(activation, sum));
    }
  }
  return out;
}

struct Case {
  Shape x;
  int64_t features;
};

// One row, below a tile, the rows where dot products end, exact tiles, ragged tiles and batches.
const Case kCases[] = {
    {{1}, 1}, {{1, 3}, 2}, {{7, 5}, 3}, {{8, 16}, 32}, {{2, 5, 17}, 33}, {{3, 27, 40}, 70}};

TEST(Linear, MatchesItsFormulaAndItsFiniteDifferences) {
  for (const auto& [shape, features] : kCases) {
    const int64_t width = shape[shape.rank() - 1];
    const Tensor x = randn(shape, 1, 0, kF64);
    const Tensor weight = randn({features, width}, 1, 1, kF64);
    const Tensor bias = randn({features}, 1, 2, kF64);
    for (const Activation activation : kActivations) {
      for (const Tensor& b : {bias, Tensor()}) {
        const Tensor out = linear(x, weight, b, {activation});
        EXPECT_EQ(out.rank(), x.rank());
        EXPECT_EQ(out.size(-1), features);
        EXPECT_TRUE(near(
            out, reference(x, weight, b, activation), testing::tolerance_for(DType::f64, width)));
      }
      EXPECT_TRUE(testing::gradcheck_passes(
          [&](const auto& in) { return std::vector{linear(in[0], in[1], in[2], {activation})}; },
          {x, weight, bias}));
    }
  }
}

TEST(Linear, DTypesAndThreadCountsAgree) {
  for (const auto& [shape, features] :
       {Case{{5, 33}, 9}, Case{{2, 130, 50}, 70}, Case{{300, 600}, 140}}) {
    const int64_t width = shape[shape.rank() - 1];
    const std::vector<Tensor> inputs{
        randn(shape, 2, 0, kF64),
        randn({features, width}, 2, 1, kF64),
        randn({features}, 2, 2, kF64)};
    for (const Activation activation : {Activation::none, Activation::gelu}) {
      const auto function = [&](const std::vector<Tensor>& in) {
        return std::vector{linear(in[0], in[1], in[2], {activation})};
      };
      testing::expect_dtypes_agree(function, inputs, 600);
      testing::expect_same_bits_for_any_threads(function, inputs);
    }
  }
}

}  // namespace
}  // namespace sluice
