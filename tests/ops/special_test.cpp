#include "ops/special.h"

#include <cmath>

#include <gtest/gtest.h>

#include "engine/errors.h"
#include "tests/reference/gamma.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"

namespace sluice {
namespace {

using testing::near;

using Function = Tensor (*)(const Tensor&);
constexpr Function kFunctions[] = {ops::lgamma, ops::digamma, ops::trigamma};

// Positive arguments spread over many orders of magnitude.
Tensor positive(const Shape& shape, uint64_t seed, double spread) {
  Tensor x = randn(shape, seed, 0, {DType::f64, {}});
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<double>()[i] = std::exp(spread * x.data<double>()[i]);
  return x;
}

TEST(Special, MatchesIntegralRepresentations) {
  const Tensor x = positive({40}, 1, 4.0);
  std::vector<double> log_gamma, psi, psi1;
  for (const double value : x.to_vector<double>()) {
    log_gamma.push_back(double(lgammal(value)));
    psi.push_back(double(reference::digamma(value)));
    psi1.push_back(double(reference::polygamma(1, value)));
  }
  // The zeros of lgamma (1 and 2) and digamma (1.46) are met with an absolute error.
  EXPECT_TRUE(near(ops::lgamma(x), log_gamma, {1e-14, 1e-14}));
  EXPECT_TRUE(near(ops::digamma(x), psi, {1e-14, 1e-14}));
  EXPECT_TRUE(near(ops::trigamma(x), psi1, {0, 1e-14}));
}

TEST(Special, ClosedForms) {
  const Tensor x = from_values<double>(std::vector<double>{1, 0.5, 2, 10}, {4});
  const double euler = 0.57721566490153286061;
  EXPECT_TRUE(
      near(ops::lgamma(x), {0, 0.5 * std::log(M_PI), 0, std::log(362880.0)}, {1e-14, 1e-14}));
  EXPECT_TRUE(near(
      ops::digamma(x),
      {-euler, -euler - 2 * std::log(2.0), 1 - euler, 7129.0 / 2520.0 - euler},
      {1e-14, 1e-14}));
  EXPECT_TRUE(near(
      ops::trigamma(x),
      {M_PI * M_PI / 6, M_PI * M_PI / 2, M_PI * M_PI / 6 - 1, 0.10516633568168575},
      {1e-14, 1e-14}));
}

TEST(Special, FiniteDifferences) {
  for (const Function function : kFunctions) {
    // A small spread: near 0 the third derivative makes differences useless.
    EXPECT_TRUE(testing::gradcheck_passes(
        [&](const auto& in) { return std::vector{function(in[0])}; }, {positive({2, 9}, 2, 0.5)}));
  }
}

TEST(Special, GradientOfTrigammaMatchesItsIntegral) {
  const std::vector<double> points{1e-3, 0.3, 1.0, 4.5, 9.9, 1e4};
  const Tensor x = from_values<double>(points, {6});
  const auto run = testing::run_with_grads(
      [](const auto& in) { return std::vector{ops::trigamma(in[0])}; },
      {x},
      DType::f64,
      DType::f64);
  const Tensor upstream = randn({6}, 7, 0, {DType::f64, {}});
  for (size_t i = 0; i < points.size(); ++i) {
    const double expected = upstream.data<double>()[i] * double(reference::polygamma(2, points[i]));
    EXPECT_NEAR(run.grads[0].data<double>()[i] / expected, 1, 1e-13) << points[i];
  }
}

TEST(Special, DTypesThreadsAndStridesAgree) {
  for (const Function function : kFunctions) {
    const auto call = [&](const std::vector<Tensor>& in) { return std::vector{function(in[0])}; };
    testing::expect_dtypes_agree(call, {positive({1}, 3, 1.0)}, 1);
    testing::expect_dtypes_agree(call, {positive({3, 701}, 3, 1.0)}, 1);
    testing::expect_same_bits_for_any_threads(call, {positive({3, 2049}, 4, 1.0)});
    const Tensor x = positive({4, 6}, 5, 1.0);
    const Tensor transposed = x.alias({6, 4}, {1, 6}, 0);
    EXPECT_TRUE(testing::bit_equal(function(transposed), function(clone(transposed))));
    EXPECT_EQ(function(empty({0, 3})).numel(), 0);
  }
}

// Tiny, huge and invalid arguments, in the dtype that overflows first.
TEST(Special, Extremes) {
  const float inf = INFINITY;
  const Tensor x =
      from_values<float>(std::vector<float>{0, 1e-30f, 1e30f, inf, -1, NAN, 1e-45f}, {7});
  const auto log_gamma = ops::lgamma(x).to_vector<float>();
  EXPECT_EQ(log_gamma[0], inf);
  EXPECT_FLOAT_EQ(log_gamma[1], 69.0775528f);
  EXPECT_FLOAT_EQ(log_gamma[2], 6.80775528e31f);
  EXPECT_EQ(log_gamma[3], inf);
  EXPECT_FLOAT_EQ(log_gamma[6], 103.27893f);
  const auto psi = ops::digamma(x).to_vector<float>();
  EXPECT_EQ(psi[0], -inf);
  EXPECT_FLOAT_EQ(psi[1], -1e30f);
  EXPECT_FLOAT_EQ(psi[2], 69.0775528f);
  EXPECT_EQ(psi[3], inf);
  const auto psi1 = ops::trigamma(x).to_vector<float>();
  EXPECT_EQ(psi1[0], inf);
  EXPECT_EQ(psi1[1], inf);  // 1e60
  EXPECT_FLOAT_EQ(psi1[2], 1e-30f);
  EXPECT_EQ(psi1[3], 0.0f);
  for (const Function function : kFunctions) {
    EXPECT_TRUE(std::isnan(function(x).to_vector<float>()[4]));
    EXPECT_TRUE(std::isnan(function(x).to_vector<float>()[5]));
  }
  const Tensor huge = from_values<double>(std::vector<double>{1e300, 1e-300}, {2});
  EXPECT_TRUE(near(ops::lgamma(huge), {6.8977552789821e302, 690.775527898214}, {0, 1e-13}));
  EXPECT_TRUE(near(ops::trigamma(full({1}, 1e150, {DType::f64, {}})), {1e-150}, {0, 1e-14}));
}

TEST(Special, Throws) {
  SLUICE_EXPECT_THROW(ops::lgamma(Tensor()), ArgumentError, "lgamma: x must be a tensor");
  SLUICE_EXPECT_THROW(
      ops::digamma(zeros({2}, {DType::i32, {}})),
      DTypeError,
      "digamma: x must be floating, got i32");
}

}  // namespace
}  // namespace sluice
