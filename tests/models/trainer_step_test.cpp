// The numbers of single optimiser steps, against sums and updates worked out here.
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "models/batches.h"
#include "models/trainer.h"
#include "tests/support/compare.h"

namespace sluice {
namespace {

using testing::values_of;

TextData counting_text() {
  TextData text;
  for (int i = 0; i < 300; ++i) {
    const std::string line = "Key: " + std::to_string(i * 7919 % 1000) + "\n";
    text.bytes.insert(text.bytes.end(), line.begin(), line.end());
  }
  text.held_out_begin = int64_t(text.bytes.size()) * 9 / 10;
  return text;
}

// Dense layers: routing noise is drawn per forward pass, so parts would differ from a whole.
RunConfig dense_config() {
  RunConfig config;
  config.model.layers = 2;
  config.model.layer_kinds = {"window", "full"};
  config.model.width = 16;
  config.model.heads = 2;
  config.model.kv_heads = 1;
  config.model.feed_forward = 32;
  config.model.context = 32;
  config.model.window = 4;
  config.train.steps = 10;
  config.train.batch = 4;
  config.train.tokens = 32;
  config.train.warmup = 4;
  config.train.learning_rate = 0.02;
  config.train.decay = Decay::constant;
  return config;
}

// The gradients of one batch, from a model of its own.
std::map<std::string, std::vector<double>> gradients_of_first_batch(const RunConfig& config) {
  const MetaAttentionLM model(config.model, config.train.seed);
  for (const NamedTensor& named : model.parameters()) autograd::set_requires_grad(named.tensor);
  const TextData text = counting_text();
  const Batch batch = sampled_batch(
      text.training(),
      {.batch = config.train.batch, .tokens = config.train.tokens, .seed = config.train.seed},
      0);
  const ModelOutput output = model.forward(batch.tokens, batch.targets, {.training = true});
  autograd::backward(output.cross_entropy);
  std::map<std::string, std::vector<double>> gradients;
  for (const NamedTensor& named : model.parameters()) {
    gradients[named.name] = values_of(autograd::grad(named.tensor));
  }
  return gradients;
}

double norm_of(const std::map<std::string, std::vector<double>>& gradients) {
  double squares = 0;
  for (const auto& [name, values] : gradients) {
    for (const double value : values) squares += value * value;
  }
  return std::sqrt(squares);
}

TEST(TrainerStep, AccumulatedPartsHaveTheGradientOfTheWhole) {
  RunConfig config = dense_config();
  const double norm = norm_of(gradients_of_first_batch(config));
  Trainer whole(config, counting_text());
  config.train.batch = 1;
  config.train.accumulation = 4;
  Trainer parts(config, counting_text());
  for (int step = 0; step < 3; ++step) {
    const StepReport a = whole.step();
    const StepReport b = parts.step();
    EXPECT_NEAR(b.loss, a.loss, 2e-5) << step;
    EXPECT_NEAR(b.gradient_norm, a.gradient_norm, 1e-4 * a.gradient_norm) << step;
    const double expected = step == 0 ? norm : a.gradient_norm;
    EXPECT_NEAR(a.gradient_norm, expected, 1e-5 * expected);
  }
}

TEST(TrainerStep, ReportsTheRateOfTheSchedule) {
  Trainer trainer(dense_config(), counting_text());
  for (const double rate : {0.005, 0.01, 0.015, 0.02, 0.02}) {
    EXPECT_NEAR(trainer.step().learning_rate, rate, 1e-12);
  }
}

// A large epsilon keeps the first step of AdamW from being blind to the scale of its gradients.
TEST(TrainerStep, AClippedStepIsAdamWOnScaledGradients) {
  RunConfig config = dense_config();
  config.train.epsilon = 0.01;
  config.train.clip = 0.25;
  const auto gradients = gradients_of_first_batch(config);
  const double norm = norm_of(gradients);
  ASSERT_GT(norm, 4 * config.train.clip);
  const double scale = config.train.clip / norm;
  const double rate = config.train.learning_rate / double(config.train.warmup);

  Trainer trainer(config, counting_text());
  std::map<std::string, std::vector<double>> expected;
  for (const NamedTensor& named : trainer.model().parameters()) {
    std::vector<double> values = values_of(named.tensor);
    // The gains, q_norm and k_norm of rank 2 among them, are not decayed.
    const bool gain = named.name.ends_with("norm.weight");
    const double decay = gain ? 0 : config.train.weight_decay;
    const auto& grads = gradients.at(named.name);
    for (size_t i = 0; i < values.size(); ++i) {
      // The corrected moments of a first step are the gradient and its square.
      const double g = scale * grads[i];
      values[i] -= rate * (g / (std::abs(g) + config.train.epsilon) + decay * values[i]);
    }
    expected[named.name] = values;
  }
  EXPECT_NEAR(trainer.step().gradient_norm, norm, 1e-5 * norm) << "before clipping";
  // Moves are up to 0.005; f32 rounds the parameters, at most 1 here, by 6e-8.
  for (const NamedTensor& named : trainer.model().parameters()) {
    EXPECT_TRUE(testing::near(named.tensor, expected.at(named.name), {2e-7, 0}, named.name));
  }
}

}  // namespace
}  // namespace sluice
