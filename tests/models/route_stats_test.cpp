// Routing statistics of two tokens, worked out by hand.
#include "models/route_stats.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "tests/models/small_model.h"
#include "tests/support/compare.h"

namespace sluice {
namespace {

using Row = std::array<double, kExperts>;

// Tokens with counts (2, 1, 1) and (37, 2, 1): means (1/2, 1/4, 1/4) and (37, 2, 1) / 40.
const Tensor kCounts = from_values(std::vector<float>{2, 1, 1, 37, 2, 1}, {1, 2, kExperts});
constexpr Row kCosts = {1, 0.5, 0.25};
constexpr Row kPrior = {1, 2, 1};

double entropy(const Row& p) {
  double sum = 0;
  for (const double value : p) sum -= value > 0 ? value * std::log(value) : 0;
  return sum;
}

// psi of a whole number, without the constant -0.5772 that every difference below cancels.
double harmonic(double n) {
  double sum = 0;
  for (int k = 1; k < int(n); ++k) sum += 1.0 / k;
  return sum;
}

double log_beta(const Row& c) {
  return std::lgamma(c[0]) + std::lgamma(c[1]) + std::lgamma(c[2]) -
         std::lgamma(c[0] + c[1] + c[2]);
}

TEST(RouteStats, EveryFieldOfTwoTokens) {
  const Row mean = {(0.5 + 0.925) / 2, (0.25 + 0.05) / 2, (0.25 + 0.025) / 2};
  const double token_entropy = (entropy({0.5, 0.25, 0.25}) + entropy({0.925, 0.05, 0.025})) / 2;
  double kl = 0;
  double differential = 0;
  for (const Row& c : {Row{2, 1, 1}, Row{37, 2, 1}}) {
    const double sum = c[0] + c[1] + c[2];
    kl += (log_beta(kPrior) - log_beta(c)) / 2;
    differential += log_beta(c) / 2;
    for (size_t k = 0; k < kExperts; ++k) {
      const double mean_log = harmonic(c[k]) - harmonic(sum);  // E log p_k
      kl += (c[k] - kPrior[k]) * mean_log / 2;
      differential -= (c[k] - 1) * mean_log / 2;
    }
  }
  const Tensor weights = from_values(std::vector<float>{0.5, 0, 0.5, 0, 1, 0}, {1, 2, kExperts});
  const RouteStats stats = posterior_stats(kCounts, weights, kCosts, kPrior);
  for (size_t k = 0; k < kExperts; ++k) EXPECT_NEAR(stats.mean_weight[k], mean[k], 1e-12) << k;
  EXPECT_NEAR(stats.entropy, token_entropy / std::log(3.0), 1e-12);
  EXPECT_NEAR(stats.sample_entropy, std::log(2.0) / 2 / std::log(3.0), 1e-12);
  EXPECT_NEAR(stats.mutual_information, entropy(mean) - token_entropy, 1e-12);
  EXPECT_NEAR(stats.decided, 0.5, 1e-12);
  EXPECT_NEAR(stats.dirichlet_entropy, differential, 1e-10);
  EXPECT_NEAR(stats.kl, kl, 1e-10);
  EXPECT_NEAR(stats.expected_cost, mean[0] + 0.5 * mean[1] + 0.25 * mean[2], 1e-12);
  EXPECT_EQ(stats.share, Row{}) << "routes are not the posterior's";
  EXPECT_EQ(stats.hard_cost, 0);
}

TEST(RouteStats, WithoutWeightsTheMeanCounts) {
  const RouteStats stats = posterior_stats(kCounts, {}, kCosts, kPrior);
  EXPECT_NEAR(stats.sample_entropy, stats.entropy, 1e-12);
  const RouteStats none = posterior_stats(zeros({2, 0, kExperts}), {}, kCosts, kPrior);
  EXPECT_EQ(none.mean_weight, Row{});
  EXPECT_EQ(none.kl, 0);
}

TEST(RouteStats, SharesCountTheTokensOfEachExpert) {
  const Tensor ids = from_values(std::vector<int32_t>{0, 2, 2, -1, 1, 2, 0, 2}, {2, 4});
  const Row share = route_shares(ids);
  EXPECT_EQ(share, (Row{0.25, 0.125, 0.5}));
}

TEST(RouteStats, ALayerPricesTheRoutesItTook) {
  const autograd::NoGrad no_grad;
  MetaAttentionConfig config = testing::small_config();
  config.costs = "paper";
  const MetaAttentionLM model = testing::lively_model(config);
  StepOptions options = testing::in_mode(RouteMode::hard);
  options.statistics = true;
  const Tensor tokens = testing::random_tokens(2, 150, 31, 8);
  for (const LayerOutput& layer : model.forward(tokens, {}, options).layers) {
    Row share{};
    for (const int32_t id : layer.decision.ids.to_vector<int32_t>()) share[size_t(id)] += 1.0 / 300;
    EXPECT_GT(*std::min_element(share.begin(), share.end()), 0) << "all three must be priced";
    const RouteStats& stats = layer.decision.stats;
    for (size_t k = 0; k < kExperts; ++k) EXPECT_NEAR(stats.share[k], share[k], 1e-12) << k;
    EXPECT_NEAR(stats.hard_cost, share[0] + 0.15 * share[1] + 0.30 * share[2], 1e-12);
  }
}

}  // namespace
}  // namespace sluice
