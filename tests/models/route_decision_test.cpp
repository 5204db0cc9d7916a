// Prices, priors, and the weights and routes that follow from them, against numbers by hand.
#include "models/route_decision.h"

#include <cmath>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "models/routes.h"
#include "tests/models/small_model.h"
#include "tests/support/compare.h"

namespace sluice {
namespace {

using testing::bit_equal;
using testing::in_mode;
using testing::lively_model;
using testing::logits_of;
using testing::near;
using testing::random_tokens;
using testing::small_config;

using Row = std::array<double, kExperts>;

void expect_near(const Row& actual, const Row& expected, double tolerance) {
  for (size_t k = 0; k < kExperts; ++k) EXPECT_NEAR(actual[k], expected[k], tolerance) << k;
}

TEST(RouteDecision, PricesOfPaperAndTable) {
  MetaAttentionConfig config = small_config();
  config.costs = "paper";
  expect_near(expert_costs(config, 10), {1, 0.15, 0.30}, 0);
  config.costs = "table";
  config.cost_table = {8, 2, 4};
  expect_near(expert_costs(config, 10), {1, 0.25, 0.5}, 0);
}

TEST(RouteDecision, ThePriorFavoursWhatIsCheap) {
  MetaAttentionConfig config = small_config();
  config.costs = "paper";
  config.prior_floor = 0.01;
  config.prior_scale = 1;
  expect_near(prior_counts(config), {0.01, 0.86, 0.71}, 1e-12);  // as published
  config.prior_scale = 2;
  expect_near(prior_counts(config), {0.01, 1.71, 1.41}, 1e-12);
  config.costs = "table";
  config.cost_table = {1, 3, 0.5};
  expect_near(prior_counts(config), {0.01, 0.01, 1.01}, 1e-12);  // dearer than full: the floor
  config.costs = "flops";
  const Row prices = expert_costs(config, config.context);
  ASSERT_LT(prices[2], 0.5);
  EXPECT_NEAR(prior_counts(config)[2], 0.01 + 2 * (1 - prices[2]), 1e-12) << "at the context";
}

// Counts (0.01, 0.86, 0.71) add up to 1.58.
TEST(RouteDecision, PriorAndUniformWeighEveryTokenAlike) {
  const autograd::NoGrad no_grad;
  const Tensor tokens = random_tokens(2, 20, 31, 3);
  const struct {
    const char* kind;
    RouteMode mode;
    Row weights;
  } cases[] = {
      {"prior", RouteMode::hard, {0.01 / 1.58, 0.86 / 1.58, 0.71 / 1.58}},
      {"routed", RouteMode::prior, {0.01 / 1.58, 0.86 / 1.58, 0.71 / 1.58}},
      {"uniform", RouteMode::hard, {1.0 / 3, 1.0 / 3, 1.0 / 3}},
      {"routed", RouteMode::uniform, {1.0 / 3, 1.0 / 3, 1.0 / 3}},
  };
  for (const auto& c : cases) {
    MetaAttentionConfig config = small_config();
    config.costs = "paper";
    config.prior_floor = 0.01;
    config.layer_kinds = {c.kind};
    const ModelOutput output = lively_model(config).forward(tokens, {}, in_mode(c.mode));
    std::vector<double> expected;
    for (int token = 0; token < 40; ++token) {
      expected.insert(expected.end(), c.weights.begin(), c.weights.end());
    }
    for (const LayerOutput& layer : output.layers) {
      EXPECT_FALSE(layer.decision.ids.defined());
      EXPECT_EQ(layer.decision.weights.shape(), (Shape{2, 20, kExperts}));
      EXPECT_TRUE(near(layer.decision.weights, expected, {1e-6, 0}, c.kind));
    }
  }
}

TEST(RouteDecision, RandomRoutesHaveTheirShares) {
  const Row shares = {0.2, 0.5, 0.3};
  const Tensor ids = random_routes(4, 5000, shares, {1, 2});
  // Five standard deviations of 20,000 draws; one seed in 500,000 fails.
  expect_near(route_shares(ids), shares, 5 * std::sqrt(0.25 / 20000));
  // Neighbours are independent: 0.2^2 + 0.5^2 + 0.3^2 of them are equal.
  const auto values = ids.to_vector<int32_t>();
  double equal = 0;
  for (size_t i = 1; i < values.size(); ++i) equal += values[i] == values[i - 1] ? 1 : 0;
  EXPECT_NEAR(equal / double(values.size()), 0.38, 5 * std::sqrt(0.25 / 20000));
  expect_near(route_shares(random_routes(1, 1000, {0, 1, 0}, {1, 2})), {0, 1, 0}, 1e-9);
  expect_near(route_shares(random_routes(1, 1000, {0, 0, 1}, {1, 2})), {0, 0, 1}, 1e-9);
}

TEST(RouteDecision, ARandomLayerRunsItsDraws) {
  const Tensor tokens = random_tokens(2, 140, 31, 4);
  for (const auto& [kind, shares] :
       {std::pair("full", std::vector<double>{1, 0, 0}),
        {"linear", {0, 1, 0}},
        {"window", {0, 0, 1}}}) {
    MetaAttentionConfig config = small_config();
    config.layer_kinds = {"random"};
    config.random_shares = shares;
    const Tensor random = logits_of(lively_model(config), tokens, in_mode(RouteMode::hard));
    config.layer_kinds = {kind};
    const Tensor dense = logits_of(lively_model(config), tokens, in_mode(RouteMode::hard));
    EXPECT_TRUE(near(random, dense, {2e-4, 2e-4}, kind));
  }
  MetaAttentionConfig config = small_config();
  config.layer_kinds = {"random"};
  const MetaAttentionLM model = lively_model(config);
  const autograd::NoGrad no_grad;
  const auto ids_of = [&](uint64_t seed, uint64_t step, size_t layer) {
    StepOptions options = in_mode(RouteMode::hard);
    options.seed = seed;
    options.step = step;
    return model.forward(tokens, {}, options).layers[layer].decision.ids;
  };
  const Tensor ids = ids_of(5, 0, 0);
  EXPECT_TRUE(bit_equal(ids_of(5, 0, 0), ids));
  EXPECT_FALSE(bit_equal(ids_of(6, 0, 0), ids));
  EXPECT_FALSE(bit_equal(ids_of(5, 1, 0), ids));
  EXPECT_FALSE(bit_equal(ids_of(5, 0, 1), ids));
}

TEST(RouteDecision, WarmEvidenceSpeaksForTheWarmExpert) {
  MetaAttentionConfig config = small_config();
  config.warm_kinds = {"linear", "full"};
  config.warm_evidence = 4;
  const MetaAttentionLM model(config, 3);
  std::vector<std::vector<float>> biases;
  for (const NamedTensor& named : model.parameters()) {
    if (named.name.ends_with("counts.bias")) biases.push_back(named.tensor.to_vector<float>());
  }
  EXPECT_EQ(biases, (std::vector<std::vector<float>>{{0, 4, 0}, {4, 0, 0}}));
  // A fresh router adds softplus(4) and softplus(0) to the prior, up to its small random weights.
  const autograd::NoGrad no_grad;
  const auto prior = prior_counts(config);
  const ModelOutput output =
      model.forward(random_tokens(1, 30, 31, 2), {}, in_mode(RouteMode::soft));
  for (size_t layer = 0; layer < 2; ++layer) {
    Row counts;
    for (size_t k = 0; k < kExperts; ++k) {
      counts[k] = prior[k] + std::log1p(std::exp(double(biases[layer][k])));
    }
    const double sum = counts[0] + counts[1] + counts[2];
    const auto weights = output.layers[layer].decision.weights.to_vector<float>();
    for (size_t i = 0; i < weights.size(); ++i) {
      EXPECT_NEAR(weights[i], counts[i % kExperts] / sum, 0.01) << layer;
    }
  }
}

// A router of constants, whose counts are prior + softplus(0) for every token.
TEST(RouteDecision, TrainingDrawsFromThePosteriorOrTakesItsMean) {
  const autograd::NoGrad no_grad;
  MetaAttentionConfig config = small_config();
  config.costs = "table";
  config.cost_table = {1, 1, 0.25};
  const double one = 0.3 + std::log(2.0);
  const Row counts = {one, one, one + 0.75};
  const double sum = counts[0] + counts[1] + counts[2];
  const Tensor tokens = random_tokens(8, 200, 31, 4);
  for (const char* posterior : {"sample", "mean"}) {
    config.posterior = posterior;
    const MetaAttentionLM model(config, 3);
    for (const NamedTensor& named : model.parameters()) {
      if (named.name.find(".controller.") != std::string::npos) fill(named.tensor, 0);
    }
    for (const bool training : {false, true}) {
      StepOptions options = in_mode(RouteMode::soft);
      options.training = training;
      const auto weights =
          model.forward(tokens, {}, options).layers[0].decision.weights.to_vector<float>();
      const bool drawn = training && config.posterior == "sample";
      const double n = double(weights.size() / kExperts);
      for (size_t k = 0; k < kExperts; ++k) {
        const double mean = counts[k] / sum;
        double total = 0, squares = 0;
        for (size_t i = k; i < weights.size(); i += kExperts) {
          total += weights[i];
          squares += (weights[i] - mean) * (weights[i] - mean);
        }
        // Five standard deviations of the mean of 1600 draws; a sixth of their variance.
        const double variance = drawn ? mean * (1 - mean) / (sum + 1) : 0.0;
        EXPECT_NEAR(total / n, mean, 5 * std::sqrt(variance / n) + 1e-6) << posterior << k;
        EXPECT_NEAR(squares / n, variance, variance / 6 + 1e-12) << posterior << k;
      }
    }
  }
}

}  // namespace
}  // namespace sluice
