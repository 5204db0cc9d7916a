#include "ops/linear.h"

#include <cmath>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "autograd/node.h"
#include "engine/errors.h"
#include "ops/unary.h"
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

// A slice of a wider projection, a transposed weight and a gradient that was expanded: read in
// place or copied, never misread.
TEST(Linear, ViewsGiveTheSameAsCopies) {
  const Tensor wide = randn({4, 9, 30}, 3, 0, kF64);
  const Tensor x = wide.alias({4, 9, 10}, {270, 30, 1}, 20);
  const Tensor turned = wide.alias({9, 4, 10}, {30, 270, 1}, 20);
  const Tensor memory = randn({10, 6}, 3, 1, kF64);
  const Tensor weight = memory.alias({6, 10}, {1, 6}, 0);
  EXPECT_TRUE(testing::bit_equal(linear(x, weight), linear(clone(x), weight)));
  EXPECT_TRUE(testing::bit_equal(linear(turned, weight), linear(clone(turned), weight)));
  EXPECT_TRUE(near(linear(x, weight), linear(x, clone(weight)), {1e-12, 0}));

  const auto grads = [&](const Tensor& grad_out) {
    const Tensor leaf = autograd::set_requires_grad(clone(x));
    const Tensor parameter = autograd::set_requires_grad(clone(weight));
    autograd::backward(linear(leaf, parameter, {}, {Activation::silu}), grad_out);
    return std::pair{autograd::grad(leaf), autograd::grad(parameter)};
  };
  const Tensor expanded = full({1}, 2, kF64).alias({4, 9, 6}, {0, 0, 0}, 0);
  const auto [grad_x, grad_weight] = grads(expanded);
  const auto [copied_x, copied_weight] = grads(clone(expanded));
  EXPECT_TRUE(testing::bit_equal(grad_x, copied_x));
  EXPECT_TRUE(testing::bit_equal(grad_weight, copied_weight));
}

// The fused epilogue is the same function as the op.
TEST(Linear, FusedActivationAgreesWithTheOp) {
  const std::vector<Tensor> inputs{
      randn({40, 33}, 6, 0, kF64), randn({50, 33}, 6, 1, kF64), randn({50}, 6, 2, kF64)};
  const auto agree = [&](Activation activation, Tensor (*op)(const Tensor&)) {
    const auto run = [&](const autograd::GradcheckFunction& function) {
      return testing::run_with_grads(function, inputs, DType::f32, DType::f32);
    };
    const auto fused =
        run([&](const auto& in) { return std::vector{linear(in[0], in[1], in[2], {activation})}; });
    const auto composed =
        run([&](const auto& in) { return std::vector{op(linear(in[0], in[1], in[2]))}; });
    EXPECT_TRUE(near(fused.outputs[0], composed.outputs[0], {1e-6, 1e-6}));
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_TRUE(near(fused.grads[i], composed.grads[i], {1e-5, 1e-5}));
    }
  };
  agree(Activation::gelu, [](const Tensor& x) { return ops::gelu(x); });
  agree(Activation::silu, [](const Tensor& x) { return ops::silu(x); });
  agree(Activation::relu, [](const Tensor& x) { return ops::relu(x); });
}

// What needs no gradient is neither computed nor saved.
TEST(Linear, FrozenInputs) {
  const Tensor x = randn({5, 3}, 1);
  const Tensor weight = randn({4, 3}, 2);
  const Tensor bias = autograd::set_requires_grad(randn({4}, 3));
  const Tensor out = linear(x, weight, bias);
  EXPECT_EQ(autograd::graph_report(out)[0].saved_bytes, 0);
  autograd::backward(out, full({5, 4}, 1));
  EXPECT_EQ(autograd::grad(bias).to_vector<float>(), std::vector<float>(4, 5));

  const Tensor leaf = autograd::set_requires_grad(clone(x));
  const Tensor row = linear(leaf, weight);
  EXPECT_EQ(autograd::graph_report(row)[0].saved_bytes, 4 * 3 * sizeof(float));
  EXPECT_FALSE(autograd::requires_grad(linear(x, weight)));
}

TEST(Linear, EmptyAxes) {
  const Tensor bias = autograd::set_requires_grad(from_values(std::vector<double>{1, 2}, {2}));
  // K = 0: the sum is empty, the bias remains.
  const Tensor out = linear(empty({3, 0}, kF64), empty({2, 0}, kF64), bias);
  EXPECT_EQ(out.to_vector<double>(), (std::vector<double>{1, 2, 1, 2, 1, 2}));
  for (const auto& [x, n] :
       {Case{{0, 3}, 2}, Case{{2, 0, 3}, 2}, Case{{4, 0}, 2}, Case{{4, 3}, 0}}) {
    const Tensor weight = randn({n, x[x.rank() - 1]}, 1, 0, kF64);
    EXPECT_TRUE(testing::gradcheck_passes(
        [](const auto& in) { return std::vector{linear(in[0], in[1], in[2], {Activation::gelu})}; },
        {randn(x, 1, 0, kF64), weight, randn({n}, 1, 0, kF64)}));
  }
}

TEST(Linear, RefusesWhatDoesNotFit) {
  const Tensor x = randn({2, 4}, 1);
  const Tensor weight = randn({3, 4}, 1);
  SLUICE_EXPECT_THROW(linear(randn({}, 1), weight), ShapeError, "x must have rank >= 1");
  SLUICE_EXPECT_THROW(
      linear(x, randn({4, 3}, 1)), ShapeError, "weight must have shape (N, 4), got (4, 3)");
  SLUICE_EXPECT_THROW(linear(x, randn({4}, 1)), ShapeError, "weight must have shape (N, 4)");
  SLUICE_EXPECT_THROW(linear(x, weight, randn({4}, 1)), ShapeError, "bias must have shape (3)");
  SLUICE_EXPECT_THROW(linear(x, randn({3, 4}, 1, 0, kF64)), DTypeError, "weight must be f32");
  SLUICE_EXPECT_THROW(linear(x, weight, randn({3}, 1, 0, kF64)), DTypeError, "bias must be f32");
  SLUICE_EXPECT_THROW(
      linear(empty({2}, {DType::i32, {}}), weight), DTypeError, "x must be floating");
  SLUICE_EXPECT_THROW(linear(x, Tensor()), ArgumentError, "weight must be a tensor");
  const Tensor elsewhere = empty({3, 4}, {DType::f32, {DeviceType::simt}});
  SLUICE_EXPECT_THROW(linear(x, elsewhere), DeviceError, "weight must be on cpu");
  SLUICE_EXPECT_THROW(linear(elsewhere, elsewhere), DeviceError, "not available on device simt");
}

}  // namespace
}  // namespace sluice
