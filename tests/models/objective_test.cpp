// The terms of the objective, recomputed from the posteriors of the layers, and what they do to a
// training.
#include <algorithm>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "models/trainer.h"
#include "ops/binary.h"
#include "ops/dirichlet.h"
#include "ops/embedding.h"
#include "ops/rms_norm.h"
#include "tests/models/small_model.h"
#include "tests/support/compare.h"

namespace sluice {
namespace {

using testing::in_mode;
using testing::lively_model;
using testing::random_tokens;
using testing::small_config;
using testing::values_of;

constexpr int64_t kTokens = 130;  // below the context, at which the prior is priced

MetaAttentionConfig objective_config() {
  MetaAttentionConfig config = small_config();
  config.layers = 3;
  config.layer_kinds = {"routed", "window", "routed"};
  config.elbo_weight = 0.1;
  config.target_cost = 0.1;
  config.multiplier_rate = 2;
  return config;
}

// Raises the multiplier from 0 to `value`.
void set_multiplier(MetaAttentionLM& model, double value) {
  ModelOutput output;
  output.expected_cost = model.config().target_cost + value / model.config().multiplier_rate;
  model.update_multiplier(output);
  ASSERT_NEAR(model.multiplier(), value, 1e-6);
}

struct Terms {
  double kl = 0;    // sum over routed layers
  double cost = 0;  // mean over routed layers
};

// Walks the residual stream and sums up, in f64, what each routed layer's posterior says of a
// token.
Terms terms_of(const MetaAttentionLM& model, const Tensor& tokens, const StepOptions& options) {
  const MetaAttentionConfig& config = model.config();
  const auto prior = prior_counts(config);
  const auto costs = expert_costs(config, tokens.size(1));
  const Tensor beta = from_values(std::vector<double>(prior.begin(), prior.end()), {kExperts});
  Terms terms;
  int routed = 0;
  Tensor x = ops::embedding(model.embedding(), tokens);
  for (const auto& block : model.blocks()) {
    if (const Controller* const controller = block.attention.controller()) {
      const Tensor normed = ops::rms_norm(x, block.attention.norm());
      const Tensor counts = to_dtype((*controller)(x, normed, 0).concentration, DType::f64);
      const auto c = values_of(counts);
      const double n = double(tokens.numel());
      for (const double kl : values_of(ops::dirichlet_kl(counts, beta))) terms.kl += kl / n;
      for (size_t i = 0; i < c.size(); i += kExperts) {
        const double sum = c[i] + c[i + 1] + c[i + 2];
        for (size_t k = 0; k < kExperts; ++k) terms.cost += c[i + k] / sum * costs[k] / n;
      }
      ++routed;
    }
    x = block.feed_forward(ops::add(x, block.attention(x, options).out));
  }
  terms.cost /= routed;
  return terms;
}

TEST(Objective, IsTheSumOfItsTerms) {
  const autograd::NoGrad no_grad;
  MetaAttentionLM model = lively_model(objective_config());
  set_multiplier(model, 1.5);
  const Tensor tokens = random_tokens(2, kTokens, 31, 6);
  const Tensor targets = random_tokens(2, kTokens, 31, 7);
  for (const RouteMode mode : {RouteMode::soft, RouteMode::straight_through}) {
    StepOptions options = in_mode(mode);
    options.training = true;
    const Terms terms = terms_of(model, tokens, options);
    for (const bool hold : {true, false}) {
      options.hold_cost = hold;
      const ModelOutput output = model.forward(tokens, targets, options);
      // Means of f32 numbers below 100.
      EXPECT_NEAR(output.kl, terms.kl, 1e-4 * terms.kl);
      EXPECT_NEAR(output.expected_cost, terms.cost, 1e-5);
      const double entropy = double(output.cross_entropy.item<float>());
      const double expected = entropy + 0.1 * terms.kl + (hold ? 1.5 * terms.cost : 0.0);
      EXPECT_NEAR(output.objective.item<float>(), expected, 1e-5 * expected) << name_of(mode);
      EXPECT_GT(0.1 * terms.kl, 0.01) << "each term must be visible in the sum";
    }
  }
}

// Only a posterior that the task trains is pulled by divergence and cost.
TEST(Objective, IsTheCrossEntropyWhereThePosteriorDoesNotTrain) {
  const autograd::NoGrad no_grad;
  MetaAttentionLM model = lively_model(objective_config());
  set_multiplier(model, 1.5);
  const Tensor tokens = random_tokens(1, 40, 31, 6);
  const auto expect_plain = [&](RouteMode mode, bool training) {
    StepOptions options = in_mode(mode);
    options.training = training;
    options.hold_cost = true;
    const ModelOutput output = model.forward(tokens, tokens, options);
    EXPECT_EQ(output.objective.item<float>(), output.cross_entropy.item<float>()) << name_of(mode);
    EXPECT_EQ(output.expected_cost, 0);
  };
  for (const RouteMode mode : {RouteMode::hard, RouteMode::uniform, RouteMode::full}) {
    expect_plain(mode, true);
  }
  expect_plain(RouteMode::soft, false);
}

// The target is the only difference between the two runs.
TEST(Objective, ATargetLowersTheExpectedCost) {
  TextData text;
  for (int i = 0; i < 200; ++i) {
    const std::string line = "Key: " + std::to_string(i * 7919 % 1000) + "\n";
    text.bytes.insert(text.bytes.end(), line.begin(), line.end());
  }
  text.held_out_begin = int64_t(text.bytes.size()) * 9 / 10;
  RunConfig config;
  config.model = small_config();
  config.model.vocabulary = 256;
  config.model.context = 32;
  config.model.costs = "paper";
  config.model.elbo_weight = 0;
  config.model.multiplier_rate = 0.2;
  config.model.phases = {{1.0, RouteMode::soft, true, 1.0}};
  config.train.steps = 60;
  config.train.tokens = 32;
  config.train.warmup = 2;
  config.train.learning_rate = 0.02;
  const auto last_cost = [&](double target) {
    config.model.target_cost = target;
    Trainer trainer(config, text);
    StepReport report;
    double largest = 0;
    while (!trainer.finished()) {
      report = trainer.step();
      largest = std::max(largest, report.multiplier);
    }
    EXPECT_EQ(largest > 0, target > 0);
    return report.expected_cost;
  };
  EXPECT_LT(last_cost(0.25), 0.3);
  EXPECT_GT(last_cost(0), 0.35);
}

}  // namespace
}  // namespace sluice
