#include "ops/straight_through.h"

#include <cmath>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "ops/softmax.h"
#include "ops/view.h"
#include "tests/support/compare.h"
#include "tests/support/strided.h"

namespace sluice::testing {
namespace {

using ops::straight_through;

struct Case {
  int64_t B, T, C;
};
const Case kCases[] = {{1, 1, 1}, {1, 4, 3}, {2, 7, 64}, {3, 65, 33}};

// Probabilities in [0.1, 1).
Tensor probabilities(int64_t B, int64_t T, DType dtype) {
  const Tensor draws = rand({B, T}, 20, 7, {DType::f64, {}});
  double* values = draws.data<double>();
  for (int64_t i = 0; i < draws.numel(); ++i) values[i] = 0.1 + 0.9 * values[i];
  return to_dtype(draws, dtype);
}

// <grad_out, rows> of each token.
std::vector<double> rewards(const Tensor& grad_out, const Tensor& rows) {
  const auto g = values_of(grad_out);
  const auto r = values_of(rows);
  const auto C = size_t(rows.size(2));
  std::vector<double> sums(g.size() / C);
  for (size_t i = 0; i < g.size(); ++i) sums[i / C] += g[i] * r[i];
  return sums;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / double(values.size());
}

TEST(StraightThrough, MatchesTheFormulas) {
  for (const Case& c : kCases) {
    for (const auto& [dtype, weight_dtype] :
         {std::pair(DType::f64, DType::f64),
          {DType::f64, DType::f32},
          {DType::f32, DType::f32},
          {DType::bf16, DType::f32}}) {
      const Tensor rows = autograd::set_requires_grad(to_dtype(normal({c.B, c.T, c.C}), dtype));
      const Tensor weight = autograd::set_requires_grad(probabilities(c.B, c.T, weight_dtype));
      const Tensor grad_out = to_dtype(normal({c.B, c.T, c.C}, 1), dtype);
      const Tensor baseline = full({1}, 0.75);
      const Tensor out = straight_through(rows, weight, baseline, {.baseline_rate = 0.25});
      EXPECT_TRUE(bit_equal(out, rows));
      EXPECT_EQ(*baseline.data<float>(), 0.75f) << "only the backward pass moves it";
      autograd::backward(out, grad_out);

      EXPECT_TRUE(bit_equal(autograd::grad(rows), grad_out));
      const auto products = rewards(grad_out, rows);
      std::vector<double> expected = values_of(weight);
      for (size_t i = 0; i < expected.size(); ++i) expected[i] = (products[i] - 0.75) / expected[i];
      // A probability of 0.1 makes an error of the reward ten times larger. In bf16 each product
      // and the sum are rounded by 2^-9 of themselves; they stay below 4 and 4 sqrt(C).
      const double root = std::sqrt(double(c.C));
      const bool bf16 = dtype == DType::bf16;
      const Tolerance tolerance = bf16 ? Tolerance{10 * 8 * root / 512, 0}
                                       : Tolerance{
                                             10 * tolerance_for(weight_dtype, c.C).absolute,
                                             tolerance_for(weight_dtype).relative};
      EXPECT_TRUE(near(autograd::grad(weight), expected, tolerance));
      EXPECT_EQ(autograd::grad(weight).dtype(), weight_dtype);
      const double moved = 0.75 + 0.25 * (mean_of(products) - 0.75);
      EXPECT_NEAR(*baseline.data<float>(), moved, bf16 ? 0.25 * 8 * root / 512 : 1e-5);
    }
  }
}

// Each draw counts with its probability. Through the softmax, on which a constant for all experts
// has no effect, the average is the mixture's gradient, whatever the baseline.
TEST(StraightThrough, AveragedOverDrawsItIsTheGradientOfTheMixture) {
  constexpr int64_t B = 2, T = 3, C = 5;
  constexpr int kDraws = 3;
  const Tensor scores = normal({B, T, kDraws}, 3);
  const Tensor grad_out = normal({B, T, C}, 4);
  const auto p = values_of(ops::softmax(scores));
  std::vector<Tensor> experts;
  std::vector<std::vector<double>> products;
  for (int k = 0; k < kDraws; ++k) {
    experts.push_back(autograd::set_requires_grad(normal({B, T, C}, 10 + uint64_t(k))));
    products.push_back(rewards(grad_out, experts.back()));
  }
  // d/ds_k of sum_j p_j r_j is p_k (r_k - sum_j p_j r_j).
  std::vector<double> expected(p.size());
  for (size_t token = 0; token < size_t(B * T); ++token) {
    double mixed = 0;
    for (size_t k = 0; k < kDraws; ++k) mixed += p[token * kDraws + k] * products[k][token];
    for (size_t k = 0; k < kDraws; ++k) {
      const size_t i = token * kDraws + k;
      expected[i] = p[i] * (products[k][token] - mixed);
    }
  }
  std::vector<double> average(p.size());
  for (int draw = 0; draw < kDraws; ++draw) {
    const Tensor leaf = autograd::set_requires_grad(clone(scores));
    const Tensor weight = ops::select(ops::softmax(leaf), 2, draw);
    autograd::backward(straight_through(experts[size_t(draw)], weight, full({1}, 0.7)), grad_out);
    const auto grads = values_of(autograd::grad(leaf));
    for (size_t i = 0; i < grads.size(); ++i) {
      average[i] += p[i / kDraws * kDraws + size_t(draw)] * grads[i];
    }
    // The mixture gives expert k p_k grad_out, as does its draw with probability p_k.
    EXPECT_TRUE(bit_equal(autograd::grad(experts[size_t(draw)]), grad_out));
  }
  for (size_t i = 0; i < average.size(); ++i) EXPECT_NEAR(average[i], expected[i], 1e-12) << i;
}

TEST(StraightThrough, ARewardThatIsNotFiniteLeavesTheBaseline) {
  for (const float bad : {INFINITY, NAN, 3e38f}) {
    const Tensor rows = autograd::set_requires_grad(full({1, 2, 3}, 2));
    const Tensor weight = autograd::set_requires_grad(full({1, 2}, 0.5));
    const Tensor baseline = full({1}, 0.25);
    const Tensor grad_out = full({1, 2, 3}, 1);
    grad_out.data<float>()[4] = bad;
    autograd::backward(straight_through(rows, weight, baseline), grad_out);
    EXPECT_EQ(*baseline.data<float>(), 0.25f) << bad;
    EXPECT_FALSE(std::isfinite(autograd::grad(weight).data<float>()[1]))
        << "the caller must see it";
  }
}

TEST(StraightThrough, OnlyAGradientOfTheWeightMovesTheBaseline) {
  const Tensor baseline = full({1}, 0.25);
  const Tensor rows = autograd::set_requires_grad(normal({1, 2, 3}));
  const Tensor weight = probabilities(1, 2, DType::f64);
  autograd::backward(straight_through(rows, weight, baseline), normal({1, 2, 3}, 1));
  EXPECT_TRUE(bit_equal(autograd::grad(rows), normal({1, 2, 3}, 1)));
  EXPECT_EQ(*baseline.data<float>(), 0.25f);
}

TEST(StraightThrough, Throws) {
  const Tensor rows = zeros({2, 3, 4});
  const Tensor weight = full({2, 3}, 1);
  const Tensor baseline = zeros({1});
  SLUICE_EXPECT_THROW(
      straight_through(rows, full({3, 2}, 1), baseline),
      ShapeError,
      "rows and weight must be (B, T, C) and (B, T), got (2, 3, 4) and (3, 2)");
  SLUICE_EXPECT_THROW(
      straight_through(zeros({2, 3}), weight, baseline), ShapeError, "got (2, 3) and (2, 3)");
  for (const DType dtype : {DType::bf16, DType::i32}) {
    SLUICE_EXPECT_THROW(
        straight_through(rows, to_dtype(weight, dtype), baseline),
        DTypeError,
        "weight must be f32 or f64, got " + std::string(name_of(dtype)));
  }
  SLUICE_EXPECT_THROW(
      straight_through(rows, weight, zeros({2})), ShapeError, "baseline must be one f32");
  SLUICE_EXPECT_THROW(
      straight_through(rows, weight, zeros({1}, {DType::f64, {}})),
      ShapeError,
      "baseline must be one f32");
}

}  // namespace
}  // namespace sluice::testing
