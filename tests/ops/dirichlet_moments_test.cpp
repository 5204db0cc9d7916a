// Distributions of the draws. Seeds are fixed, so nothing here is flaky; each bound is given in
// standard errors, which says how often a correct sampler with another seed would miss it.
#include <cmath>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "kernels/special.h"
#include "ops/dirichlet.h"
#include "tests/support/compare.h"

namespace sluice {
namespace {

// `row` repeated.
Tensor repeated(const std::vector<double>& row, int64_t rows, DType dtype) {
  std::vector<double> values;
  values.reserve(row.size() * size_t(rows));
  for (int64_t i = 0; i < rows; ++i) values.insert(values.end(), row.begin(), row.end());
  return to_dtype(from_values(values, {rows, int64_t(row.size())}), dtype);
}

struct Moments {
  double sum = 0, squares = 0;
  int64_t count = 0;

  void add(double x) {
    sum += x;
    squares += x * x;
    ++count;
  }
  double mean() const { return sum / double(count); }
  double variance() const { return squares / double(count) - mean() * mean(); }
  double standard_error() const { return std::sqrt(variance() / double(count)); }
};

// log z has mean psi(alpha) and variance psi'(alpha); E[m] = d psi / d alpha ties the derivative to
// the draws. 5 standard errors: each of the 24 checks would miss by chance once in 1.7 million.
TEST(GammaLogSample, MomentsOfTheLogarithm) {
  constexpr int64_t kDraws = 100000;
  for (const double alpha : {1e-3, 0.1, 0.7, 1.0, 1.3, 4.0, 60.0, 79369.65}) {
    const Tensor shape = autograd::set_requires_grad(full({kDraws}, alpha, {DType::f64, {}}));
    const Tensor log_z = ops::gamma_log_sample(shape, {2024, 3});
    autograd::backward(log_z, full({kDraws}, 1.0, {DType::f64, {}}));
    Moments value, square, slope;
    for (const double draw : log_z.to_vector<double>()) {
      const double centred = draw - kernels::digamma(alpha);
      value.add(centred);
      square.add(centred * centred);
    }
    for (const double m : autograd::grad(shape).to_vector<double>()) slope.add(m);
    EXPECT_LE(std::abs(value.mean()), 5 * value.standard_error()) << alpha;
    EXPECT_LE(std::abs(square.mean() - kernels::trigamma(alpha)), 5 * square.standard_error())
        << alpha;
    EXPECT_LE(std::abs(slope.mean() - kernels::trigamma(alpha)), 5 * slope.standard_error())
        << alpha;
  }
}

// Case F4: draws underflow everywhere but at one vertex. 5 standard errors of a frequency.
TEST(DirichletSample, TinyConcentrationsPickVertices) {
  constexpr int64_t kDraws = 100000;
  for (const std::vector<double>& alpha :
       {std::vector<double>{1e-4, 1e-4, 1e-4}, {8e-5, 1e-5, 2e-5}}) {
    const auto shares =
        ops::dirichlet_sample(repeated(alpha, kDraws, DType::f32), {1, 9}).to_vector<float>();
    std::vector<double> wins(3);
    for (size_t row = 0; row < shares.size(); row += 3) {
      double sum = 0;
      for (size_t k = 0; k < 3; ++k) {
        ASSERT_FALSE(std::isnan(shares[row + k]));
        sum += double(shares[row + k]);
        wins[k] += shares[row + k] > 0.5f ? 1.0 / kDraws : 0.0;
      }
      ASSERT_NEAR(sum, 1, 1e-6);
    }
    const double total = alpha[0] + alpha[1] + alpha[2];
    for (size_t k = 0; k < 3; ++k) {
      const double p = alpha[k] / total;
      EXPECT_NEAR(wins[k], p, 5 * std::sqrt(p * (1 - p) / kDraws)) << k;
    }
  }
}

// Case F8. The bound 0.0015 is 4 standard errors or more: 1 miss in 16,000 per component.
TEST(DirichletSample, MeanOfEveryComponent) {
  constexpr int64_t kDraws = 1000000;
  const Tensor shares =
      ops::dirichlet_sample(repeated({0.15, 0.15, 0.2}, kDraws, DType::f32), {77, 1});
  const float* share = shares.data<float>();
  double mean[3] = {};
  for (int64_t row = 0; row < kDraws; ++row) {
    for (int k = 0; k < 3; ++k) mean[k] += double(share[3 * row + k]) / kDraws;
  }
  EXPECT_NEAR(mean[0], 0.3, 0.0015);
  EXPECT_NEAR(mean[1], 0.3, 0.0015);
  EXPECT_NEAR(mean[2], 0.4, 0.0015);
}

// Case F10: the pathwise gradient of E[sum_k p_k^2] is unbiased, 5 standard errors.
TEST(DirichletSample, GradientOfAnExpectation) {
  constexpr int64_t kDraws = 1000000;
  const Tensor alpha = autograd::set_requires_grad(repeated({0.5, 1.5, 3}, kDraws, DType::f64));
  const Tensor shares = ops::dirichlet_sample(alpha, {5, 10});
  Tensor upstream = clone(shares.detach());
  double* g = upstream.data<double>();
  Moments squares, logs[3], slopes[3];
  for (int64_t row = 0; row < kDraws; ++row) {
    double sum = 0;
    for (int k = 0; k < 3; ++k) {
      const double p = g[3 * row + k];
      sum += p * p;
      logs[k].add(std::log(p));
      g[3 * row + k] = 2 * p;
    }
    squares.add(sum);
  }
  autograd::backward(shares, upstream);
  const Tensor slope = autograd::grad(alpha);
  for (int64_t i = 0; i < 3 * kDraws; ++i) slopes[i % 3].add(slope.data<double>()[i]);

  EXPECT_NEAR(squares.mean(), 0.55, 5 * squares.standard_error());
  const double mean_log[] = {-3.469628, -1.469628, -0.583333};
  const double gradient[] = {-0.135, -0.0683333, 0.0316667};
  for (int k = 0; k < 3; ++k) {
    EXPECT_NEAR(logs[k].mean(), mean_log[k], 5 * logs[k].standard_error() + 1e-6) << k;
    EXPECT_NEAR(slopes[k].mean(), gradient[k], 5 * slopes[k].standard_error() + 1e-7) << k;
  }
}

// Case F5: concentrations of ten thousands, in f32. The gradient hardly varies between draws: 2 %
// is beyond 50 standard errors.
TEST(DirichletSample, GradientOfLargeConcentrations) {
  constexpr int64_t kDraws = 100000;
  const Tensor alpha =
      autograd::set_requires_grad(repeated({14539.8584, 79369.6484}, kDraws, DType::f32));
  const Tensor shares = ops::dirichlet_sample(alpha, {6, 1});
  autograd::backward(shares, repeated({1, 0}, kDraws, DType::f32));
  Moments slope;
  const Tensor grad = autograd::grad(alpha);
  for (int64_t row = 0; row < kDraws; ++row) {
    ASSERT_TRUE(std::isfinite(grad.data<float>()[2 * row]));
    ASSERT_TRUE(std::isfinite(grad.data<float>()[2 * row + 1]));
    slope.add(double(grad.data<float>()[2 * row]));
  }
  EXPECT_NEAR(slope.mean() / 8.9999e-06, 1, 0.02);
}

// Frequencies within 5 standard errors of the probabilities; the sum of the row does not matter.
TEST(CategoricalSample, Frequencies) {
  constexpr int64_t kDraws = 100000;
  for (const std::vector<double>& probs :
       {std::vector<double>{0.2, 0, 0.5, 0.3}, {4e-3, 0, 1e-2, 6e-3}, {1}}) {
    const Tensor ids = ops::categorical_sample(repeated(probs, kDraws, DType::f32), {8, 8});
    std::vector<double> frequency(probs.size());
    for (const int32_t id : ids.to_vector<int32_t>()) {
      ASSERT_GE(id, 0);
      frequency[size_t(id)] += 1.0 / kDraws;
    }
    double total = 0;
    for (const double p : probs) total += p;
    for (size_t k = 0; k < probs.size(); ++k) {
      const double p = probs[k] / total;
      EXPECT_NEAR(frequency[k], p, 5 * std::sqrt(p * (1 - p) / kDraws) + 1e-9) << k;
    }
  }
}

}  // namespace
}  // namespace sluice
