// Values, gradients and edge cases of the Dirichlet operations; distributions of the draws are in
// dirichlet_moments_test.cpp.
#include "ops/dirichlet.h"

#include <cmath>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/context.h"
#include "engine/errors.h"
#include "kernels/gamma.h"
#include "tests/reference/gamma.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"

namespace sluice {
namespace {

using testing::near;

constexpr TensorOptions kF64{DType::f64, {}};

Tensor concentrations(const Shape& shape, uint64_t seed, double spread = 1.0) {
  Tensor x = randn(shape, seed, 0, kF64);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<double>()[i] = std::exp(spread * x.data<double>()[i]);
  return x;
}

// KL(Dir(q) || Dir(p)) of one row, from the definitions in long double.
double reference_kl(const double* q, const double* p, int64_t categories) {
  long double q_total = 0, p_total = 0, sum = 0;
  for (int64_t k = 0; k < categories; ++k) {
    q_total += q[k];
    p_total += p[k];
  }
  for (int64_t k = 0; k < categories; ++k) {
    sum += lgammal(p[k]) - lgammal(q[k]);
    sum += (q[k] - p[k]) * (reference::digamma(q[k]) - reference::digamma(q_total));
  }
  return double(sum + lgammal(q_total) - lgammal(p_total));
}

// Case F1: d log z / d alpha on lines computed with 40 digits.
TEST(GammaLogDerivative, ReferenceTable) {
  constexpr double kTable[][3] = {
      {0.001, 1e-30, 68501.98086},
      {0.01, 1e-10, 2246.496547},
      {0.01, 0.5, 93.35855881},
      {0.1, 1e-06, 133.9176862},
      {0.1, 0.05, 27.34566136},
      {0.3, 0.02, 12.7097151},
      {0.5, 0.3, 3.366006486},
      {1, 0.7, 1.390312487},
      {1, 2.5, 0.7188128933},
      {2.5, 2.0, 0.4767313515},
      {5, 5, 0.2067838704},
      {8, 8, 0.1276342993},
      {10, 9, 0.1071314138},
      {10, 15, 0.08245249823},
      {50, 45, 0.02114244872},
      {100, 100, 0.01001668324},
      {1000, 1010, 0.0009951989403}};
  // dx/dalpha; the last has 8 digits.
  constexpr double kLarge[][3] = {
      {14539.8583984375, 14539.8583984375, 1.000011463},
      {14539.8583984375, 14700, 1.005498405},
      {79369.6484375, 79369.6484375, 1.0000021}};
  for (const auto& [alpha, x, expected] : kTable) {
    EXPECT_NEAR(kernels::gamma_log_derivative(alpha, std::log(x)) / expected, 1, 5e-10)
        << alpha << " " << x;
  }
  for (const auto& [alpha, x, expected] : kLarge) {
    EXPECT_NEAR(kernels::gamma_log_derivative(alpha, std::log(x)) * x / expected, 1, 3e-8)
        << alpha << " " << x;
  }
}

// Beside and far from the bulk, on both sides of every switch between methods.
TEST(GammaLogDerivative, MatchesItsIntegral) {
  for (const double alpha : {1e-4, 0.3, 1.0, 3.0, 31.99, 32.0, 33.0, 400.0, 1e4, 1e7}) {
    for (const double t : {-30.0, -1.01, -0.99, -0.4, -1e-3, 0.0, 0.4, 0.99, 1.01, 3.0}) {
      const double log_z = std::log(alpha) + t;
      const double expected = reference::gamma_log_derivative(alpha, log_z);
      EXPECT_NEAR(kernels::gamma_log_derivative(alpha, log_z) / expected, 1, 1e-11)
          << alpha << " " << t;
    }
  }
  // z underflows, and log z itself is beyond any double's exponent.
  EXPECT_NEAR(
      kernels::gamma_log_derivative(1e-3, -1e6) / ((1e6 + kernels::digamma(1.001)) * 1e3),
      1,
      1e-14);
  EXPECT_EQ(kernels::gamma_log_derivative(1.0, 800), 0.0);
  EXPECT_TRUE(std::isnan(kernels::gamma_log_derivative(-1, 0)));
  EXPECT_TRUE(std::isnan(kernels::gamma_log_derivative(1, NAN)));
}

// Draws are pinned bit for bit, to those of a version in another language: they must be the same on
// every compiler, CPU and GPU.
TEST(GammaLogSample, DrawsArePinned) {
  const Tensor alpha =
      from_values<double>(std::vector<double>{0.01, 0.5, 1, 2.5, 100, 79369.6484375}, {6});
  const auto draws = ops::gamma_log_sample(alpha, {42, 7}).to_vector<double>();
  const std::vector<double> pinned{
      -0x1.6cc195a9a6ce2p+6,
      -0x1.28ea9e337d53cp+0,
      -0x1.f0ee9925d54bcp+0,
      0x1.4ada716938364p+0,
      0x1.2bc7bbe566221p+2,
      0x1.6916d13ec3dfcp+3};
  EXPECT_EQ(draws, pinned);
}

TEST(GammaLogSample, GradientIsTheImplicitDerivative) {
  const Tensor alpha = concentrations({2, 3, 11}, 5, 2.0);
  const PhiloxKey key{3, 1};
  const auto log_z = ops::gamma_log_sample(alpha, key).to_vector<double>();
  const auto sample = [&](const auto& in) {
    return std::vector{ops::gamma_log_sample(in[0], key)};
  };
  const auto run = testing::run_with_grads(sample, {alpha}, DType::f64, DType::f64);
  std::vector<double> expected = randn(alpha.shape(), 7, 0, kF64).to_vector<double>();
  for (size_t i = 0; i < expected.size(); ++i) {
    expected[i] *= reference::gamma_log_derivative(alpha.data<double>()[i], log_z[i]);
  }
  EXPECT_TRUE(near(run.grads[0], expected, {1e-11, 1e-11}));
  testing::expect_dtypes_agree(sample, {alpha}, 1);
}

TEST(DirichletSample, GradientIsTheImplicitDerivative) {
  const PhiloxKey key{3, 2};
  for (const Shape& shape : {Shape{1}, Shape{3}, Shape{5, 2}, Shape{2, 4, 3}, Shape{2, 40}}) {
    const Tensor concentration = concentrations(shape, 6, 1.5);
    const auto log_z = ops::gamma_log_sample(concentration, key).to_vector<double>();
    const auto sample = [&](const auto& in) {
      return std::vector{ops::dirichlet_sample(in[0], key)};
    };
    const auto run = testing::run_with_grads(sample, {concentration}, DType::f64, DType::f64);
    const auto upstream = randn(shape, 7, 0, kF64).to_vector<double>();
    const size_t categories = size_t(shape[shape.rank() - 1]);
    std::vector<double> share(log_z.size()), expected(log_z.size());
    for (size_t row = 0; row < log_z.size(); row += categories) {
      double sum = 0, inner = 0;
      for (size_t k = row; k < row + categories; ++k) sum += share[k] = std::exp(log_z[k]);
      for (size_t k = row; k < row + categories; ++k) inner += upstream[k] * (share[k] /= sum);
      for (size_t k = row; k < row + categories; ++k) {
        expected[k] = share[k] * (upstream[k] - inner) *
                      reference::gamma_log_derivative(concentration.data<double>()[k], log_z[k]);
      }
    }
    EXPECT_TRUE(near(run.outputs[0], share, {1e-14, 1e-13}));
    EXPECT_TRUE(near(run.grads[0], expected, {1e-12, 1e-10}));
    testing::expect_dtypes_agree(sample, {concentration}, 1);
  }
}

// Case F13: a function of (seed, stream, element) alone.
TEST(DirichletSample, DrawsDependOnNeitherRowsNorThreads) {
  const Tensor concentration = concentrations({900, 5}, 8);
  const auto sample = [](const auto& in) {
    return std::vector{ops::dirichlet_sample(in[0], {11, 4})};
  };
  testing::expect_same_bits_for_any_threads(sample, {concentration});
  const Tensor prefix = concentration.alias({37, 5}, {5, 1}, 0);
  const Tensor all = sample(std::vector{concentration})[0];
  EXPECT_TRUE(testing::bit_equal(sample(std::vector{prefix})[0], all.alias({37, 5}, {5, 1}, 0)));
  for (const PhiloxKey other : {PhiloxKey{12, 4}, PhiloxKey{11, 5}}) {
    EXPECT_FALSE(testing::bit_equal(ops::dirichlet_sample(concentration, other), all));
  }
}

// Case F11, and the extents at the ends.
TEST(DirichletSample, RowsAreDistributions) {
  struct Case {
    int64_t rows, categories;
    double spread;
  };
  for (const auto& [rows, categories, spread] :
       {Case{1000, 1, 1}, Case{20000, 100, 1}, Case{300, 512, 6}, Case{20000, 3, 8}}) {
    const Tensor f32 = to_dtype(concentrations({rows, categories}, 9, spread), DType::f32);
    const auto shares = ops::dirichlet_sample(f32, {1, 2}).to_vector<float>();
    double worst = 0;
    for (int64_t row = 0; row < rows; ++row) {
      double sum = 0;
      for (int64_t k = 0; k < categories; ++k) {
        const float share = shares[size_t(row * categories + k)];
        ASSERT_TRUE(share >= 0 && share <= 1) << share;
        sum += double(share);
      }
      worst = std::max(worst, std::abs(sum - 1));
    }
    EXPECT_LE(worst, 1e-6) << categories;
  }
}

TEST(DirichletSample, ExtremeConcentrations) {
  // All gradients finite where shares are exactly 0 and derivatives reach 1e40 and beyond.
  const Tensor tiny = autograd::set_requires_grad(full({200, 3}, 1e-20));
  const Tensor out = ops::dirichlet_sample(tiny, {5, 5});
  autograd::backward(out, randn(out.shape(), 1));
  for (const float share : out.to_vector<float>()) EXPECT_TRUE(share == 0 || share == 1) << share;
  for (const float grad : autograd::grad(tiny).to_vector<float>()) EXPECT_EQ(grad, 0);
  // In f64 the derivative itself overflows.
  const Tensor least = autograd::set_requires_grad(full({50, 2}, 1e-160, kF64));
  autograd::backward(ops::dirichlet_sample(least, {5, 6}), randn({50, 2}, 1, 0, kF64));
  for (const double grad : autograd::grad(least).to_vector<double>()) EXPECT_EQ(grad, 0);
  // A zero is a category that is never there; what is no concentration makes its own row NaN.
  const Tensor odd = from_values<float>(
      std::vector<float>{0, 1, 2, /**/ 0, 0, 0, /**/ -1, 1, 1, /**/ INFINITY, 1, 1, /**/ 1, 1, 1},
      {5, 3});
  const auto shares = ops::dirichlet_sample(odd, {5, 5}).to_vector<float>();
  EXPECT_EQ(shares[0], 0);
  EXPECT_FLOAT_EQ(shares[1] + shares[2], 1);
  for (const size_t nan : {3, 4, 5, 6, 7, 8, 9, 10, 11}) EXPECT_TRUE(std::isnan(shares[nan]));
  EXPECT_FLOAT_EQ(shares[12] + shares[13] + shares[14], 1);
  EXPECT_EQ(ops::dirichlet_sample(empty({0, 3}), {1, 1}).numel(), 0);
}

TEST(DirichletMean, MatchesItsFormulaAndItsFiniteDifferences) {
  for (const Shape& shape : {Shape{1}, Shape{4, 1}, Shape{2, 3, 3}, Shape{3, 70}}) {
    const Tensor x = concentrations(shape, 1);
    const size_t categories = size_t(shape[shape.rank() - 1]);
    std::vector<double> expected = x.to_vector<double>();
    for (size_t row = 0; row < expected.size(); row += categories) {
      double sum = 0;
      for (size_t k = row; k < row + categories; ++k) sum += expected[k];
      for (size_t k = row; k < row + categories; ++k) expected[k] /= sum;
    }
    const auto mean = [](const auto& in) { return std::vector{ops::dirichlet_mean(in[0])}; };
    EXPECT_TRUE(near(ops::dirichlet_mean(x), expected, {1e-14, 1e-14}));
    EXPECT_TRUE(testing::gradcheck_passes(mean, {x}));
    testing::expect_dtypes_agree(mean, {x}, int64_t(categories));
  }
}

TEST(DirichletKl, MatchesItsDefinitionAndItsFiniteDifferences) {
  struct Case {
    Shape q, p;
  };
  for (const auto& [q_shape, p_shape] :
       {Case{{1}, {1}},
        Case{{3}, {3}},
        Case{{2, 5, 3}, {3}},
        Case{{2, 5, 3}, {2, 5, 3}},
        Case{{700, 2}, {2}},
        Case{{3, 40}, {40}}}) {
    const Tensor q = concentrations(q_shape, 1);
    const Tensor p = concentrations(p_shape, 2);
    const int64_t categories = q.size(-1);
    std::vector<double> expected;
    for (int64_t row = 0; row < std::min<int64_t>(q.numel() / categories, 30); ++row) {
      const double* prior = p.data<double>() + (p_shape == q_shape ? row * categories : 0);
      expected.push_back(reference_kl(q.data<double>() + row * categories, prior, categories));
    }
    const Tensor kl = ops::dirichlet_kl(q, p);
    EXPECT_EQ(kl.rank(), q.rank() - 1);
    const int64_t checked = int64_t(expected.size());
    EXPECT_TRUE(near(kl.alias({checked}, {1}, 0), expected, {1e-12, 1e-12}));
    const auto function = [](const auto& in) {
      return std::vector{ops::dirichlet_kl(in[0], in[1])};
    };
    EXPECT_TRUE(testing::gradcheck_passes(function, {q, p}, {.full_jacobian = 100}));
    testing::expect_dtypes_agree(function, {q, p}, q.numel());
    testing::expect_same_bits_for_any_threads(function, {q, p});
    // Either gradient alone.
    EXPECT_TRUE(testing::gradcheck_passes(
        [&](const auto& in) { return std::vector{ops::dirichlet_kl(in[0], p)}; },
        {q},
        {.full_jacobian = 100}));
    EXPECT_TRUE(testing::gradcheck_passes(
        [&](const auto& in) { return std::vector{ops::dirichlet_kl(q, in[0])}; },
        {p},
        {.full_jacobian = 100}));
  }
}

TEST(DirichletKl, KnownValues) {
  const auto row = [](std::vector<double> values) {
    return from_values<double>(values, {int64_t(values.size())});
  };
  // KL(uniform on [0, 1] || Beta(2, 2)) = 2 - ln 6.
  EXPECT_NEAR(ops::dirichlet_kl(row({1, 1}), row({2, 2})).item<double>(), 2 - std::log(6.0), 1e-14);
  EXPECT_EQ(
      ops::dirichlet_kl(row({0.01, 0.86, 0.71}), row({0.01, 0.86, 0.71})).item<double>(), 0.0);
  EXPECT_EQ(ops::dirichlet_kl(row({3e4, 5, 1e-7}), row({3e4, 5, 1e-7})).item<double>(), 0.0);
  // One category: no choice, no divergence.
  EXPECT_NEAR(ops::dirichlet_kl(row({3}), row({7})).item<double>(), 0, 1e-13);
}

TEST(DirichletEntropy, MatchesItsDefinitionAndItsFiniteDifferences) {
  for (const Shape& shape : {Shape{2}, Shape{2, 5, 3}, Shape{3, 40}}) {
    const Tensor x = concentrations(shape, 3);
    const int64_t categories = x.size(-1);
    // The divergence to the flat Dirichlet is the flat one's entropy, -log((K-1)!), minus this one.
    std::vector<double> expected;
    const std::vector<double> flat(size_t(categories), 1.0);
    for (int64_t row = 0; row < x.numel() / categories; ++row) {
      expected.push_back(
          -std::lgamma(double(categories)) -
          reference_kl(x.data<double>() + row * categories, flat.data(), categories));
    }
    const auto entropy = [](const auto& in) { return std::vector{ops::dirichlet_entropy(in[0])}; };
    EXPECT_TRUE(near(ops::dirichlet_entropy(x), expected, {1e-12, 1e-12}));
    EXPECT_TRUE(testing::gradcheck_passes(entropy, {x}));
    testing::expect_dtypes_agree(entropy, {x}, x.numel());
  }
  const double flat = ops::dirichlet_entropy(full({3}, 1.0, kF64)).item<double>();
  EXPECT_NEAR(flat, -std::log(2.0), 1e-14);
}

TEST(CategoricalSample, SkipsImpossibleCategoriesAndRefusesWhatIsNoDistribution) {
  const float inf = INFINITY;
  const Tensor probs = from_values<float>(
      std::vector<float>{0,   1, 0, 0, 0, 0,      NAN,   1,     1, 1, -1e-9f, 1,
                         inf, 1, 1, 0, 0, 1e-45f, 3e38f, 3e38f, 0, 1, NAN,    NAN},
      {8, 3});
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const auto ids = ops::categorical_sample(probs, {seed, 0}).to_vector<int32_t>();
    EXPECT_EQ(ids[0], 1);
    for (const size_t bad : {1, 2, 3, 4, 7}) EXPECT_EQ(ids[bad], -1);
    EXPECT_EQ(ids[5], 2);
    EXPECT_TRUE(ids[6] == 0 || ids[6] == 1) << ids[6];
  }
}

TEST(CategoricalSample, DrawsDependOnNeitherRowsNorThreads) {
  const Tensor probs = to_dtype(concentrations({4000, 3}, 4), DType::f32);
  const Tensor all = ops::categorical_sample(probs, {1, 1});
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    CpuContext context{pool};
    const ContextScope scope(context);
    EXPECT_TRUE(testing::bit_equal(ops::categorical_sample(probs, {1, 1}), all));
  }
  const Tensor prefix = probs.alias({50, 3}, {3, 1}, 0);
  EXPECT_TRUE(testing::bit_equal(ops::categorical_sample(prefix, {1, 1}), all.alias({50}, {1}, 0)));
}

TEST(Dirichlet, Throws) {
  const Tensor ids = zeros({2, 3}, {DType::i32, {}});
  SLUICE_EXPECT_THROW(
      ops::gamma_log_sample(Tensor(), {}),
      ArgumentError,
      "gamma_log_sample: alpha must be a tensor");
  SLUICE_EXPECT_THROW(
      ops::gamma_log_sample(ids, {}), DTypeError, "gamma_log_sample: alpha must be floating");
  SLUICE_EXPECT_THROW(
      ops::dirichlet_sample(ids, {}),
      DTypeError,
      "dirichlet_sample: concentration must be floating");
  SLUICE_EXPECT_THROW(
      ops::dirichlet_sample(zeros({2, 0}), {}), ShapeError, "at least 1 category, got (2, 0)");
  SLUICE_EXPECT_THROW(ops::dirichlet_mean(zeros({})), ShapeError, "dirichlet_mean: concentration");
  SLUICE_EXPECT_THROW(
      ops::dirichlet_entropy(Tensor()), ArgumentError, "dirichlet_entropy: concentration");
  SLUICE_EXPECT_THROW(
      ops::dirichlet_kl(zeros({2, 3}), zeros({2})),
      ShapeError,
      "dirichlet_kl: p must have shape (2, 3) or (3), got (2)");
  SLUICE_EXPECT_THROW(
      ops::dirichlet_kl(zeros({2, 3}), zeros({3}, kF64)),
      DTypeError,
      "dirichlet_kl: p must be f32");
  SLUICE_EXPECT_THROW(
      ops::categorical_sample(ids, {}), DTypeError, "categorical_sample: probs must be floating");
  SLUICE_EXPECT_THROW(
      ops::categorical_sample(zeros({4, 0}), {}), ShapeError, "categorical_sample: probs");
}

}  // namespace
}  // namespace sluice
