#include "models/meta_attention.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/context.h"
#include "engine/errors.h"
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

constexpr RouteMode kCausalModes[] = {
    RouteMode::soft,
    RouteMode::straight_through,
    RouteMode::hard,
    RouteMode::prior,
    RouteMode::uniform,
    RouteMode::warm,
    RouteMode::full,
    RouteMode::linear,
    RouteMode::window};

// Changing a token must not move anything before it, nor anything in the other batch row.
void expect_causal(const MetaAttentionLM& model, RouteMode mode, const Tensor& full_mask = {}) {
  const int64_t T = 150;
  const int64_t V = model.config().vocabulary;
  const Tensor tokens = random_tokens(2, T, V, 1);
  StepOptions options = in_mode(mode);
  options.full_mask = full_mask;
  const Tensor before = logits_of(model, tokens, options);
  for (const int64_t changed : {int64_t{1}, int64_t{70}, T - 1}) {
    const Tensor other = clone(tokens);
    int32_t& token = other.data<int32_t>()[T + changed];
    token = (token + 1) % int32_t(V);
    const Tensor after = logits_of(model, other, options);
    const Tensor past = before.alias({changed, V}, {V, 1}, T * V);
    const Tensor past_after = after.alias({changed, V}, {V, 1}, T * V);
    EXPECT_TRUE(bit_equal(past_after, past, std::string(name_of(mode))))
        << "changed token " << changed << " separate " << model.config().separate_projections
        << " kind " << name_of(model.config().kind(0));
    const Tensor neighbour = before.alias({T, V}, {V, 1}, 0);
    EXPECT_TRUE(bit_equal(after.alias({T, V}, {V, 1}, 0), neighbour, "batch neighbour"));
    const auto now = before.alias({1, V}, {V, 1}, (T + changed) * V).to_vector<float>();
    const auto then = after.alias({1, V}, {V, 1}, (T + changed) * V).to_vector<float>();
    EXPECT_NE(now, then) << "the changed token itself must matter";
  }
}

// `random` is left out: shuffling the routes of a whole row is a control for cost and lets the
// order of routes see ahead.
TEST(MetaAttention, NoModeLooksIntoTheFuture) {
  for (const bool separate : {false, true}) {
    MetaAttentionConfig config = small_config();
    config.separate_projections = separate;
    config.warm_kinds = {"linear", "full"};
    const MetaAttentionLM model = lively_model(config);
    for (const RouteMode mode : kCausalModes) expect_causal(model, mode);
  }
}

TEST(MetaAttention, NoKindLooksIntoTheFuture) {
  const Tensor full_mask = zeros({2, 150}, {DType::u8, {}});
  for (int64_t i = 0; i < 300; i += 7) full_mask.data<uint8_t>()[i] = 1;
  for (const bool separate : {false, true}) {
    for (const char* kind : {"full", "linear", "window", "uniform", "prior", "random", "given"}) {
      MetaAttentionConfig config = small_config();
      config.separate_projections = separate;
      config.layer_kinds = {kind};
      expect_causal(lively_model(config), RouteMode::hard, full_mask);
    }
  }
}

// Sharpened until they are one-hot, the weights of the mixture pick what hard routing runs alone.
// A token whose two best weights tie within 1 % would stay mixed, so the first tokens without such
// a tie are taken.
TEST(MetaAttention, SoftEqualsHardWhenWeightsAreOneHot) {
  for (const bool separate : {false, true}) {
    MetaAttentionConfig config = small_config();
    config.separate_projections = separate;
    config.prior_scale = 0;
    const MetaAttentionLM model = lively_model(config);
    const autograd::NoGrad no_grad;
    bool compared = false;
    for (uint64_t stream = 100; stream < 140 && !compared; ++stream) {
      const Tensor tokens = random_tokens(1, 70, config.vocabulary, stream);
      const ModelOutput hard = model.forward(tokens, {}, in_mode(RouteMode::hard));
      StepOptions options = in_mode(RouteMode::soft);
      options.sharpness = 1000;
      const ModelOutput soft = model.forward(tokens, {}, options);
      double least_decided = 1;
      std::map<int32_t, int> used;
      for (size_t layer = 0; layer < soft.layers.size(); ++layer) {
        const auto weights = soft.layers[layer].decision.weights.to_vector<float>();
        for (size_t i = 0; i < weights.size(); i += kExperts) {
          const float most = *std::max_element(&weights[i], &weights[i] + kExperts);
          least_decided = std::min(least_decided, double(most));
        }
        for (const int32_t id : hard.layers[layer].decision.ids.to_vector<int32_t>()) ++used[id];
      }
      if (least_decided < 0.99999 || used.size() < 2) continue;
      compared = true;
      EXPECT_TRUE(near(soft.logits, hard.logits, {1e-3, 1e-3}, "soft against hard"));
    }
    EXPECT_TRUE(compared) << "no tokens without a tie, separate " << separate;
  }
}

TEST(MetaAttention, FusedEqualsUnfused) {
  const MetaAttentionLM model = lively_model(small_config());
  const Tensor tokens = random_tokens(2, 150, 31, 3);
  StepOptions options = in_mode(RouteMode::hard);
  const Tensor fused = logits_of(model, tokens, options);
  options.unfused = true;
  EXPECT_TRUE(near(logits_of(model, tokens, options), fused, {2e-4, 2e-4}));
}

TEST(MetaAttention, ForcedModesEqualTheirControls) {
  for (const auto& [mode, kind] :
       {std::pair(RouteMode::full, "full"),
        {RouteMode::linear, "linear"},
        {RouteMode::window, "window"}}) {
    MetaAttentionConfig config = small_config();
    const MetaAttentionLM routed = lively_model(config);
    config.layer_kinds = {kind};
    const MetaAttentionLM control = lively_model(config);
    std::map<std::string, Tensor> values;
    for (const NamedTensor& named : routed.parameters()) values[named.name] = named.tensor;
    for (const NamedTensor& named : control.parameters()) {
      copy_into(named.tensor, values.at(named.name));
    }
    const Tensor tokens = random_tokens(1, 140, config.vocabulary, 4);
    EXPECT_TRUE(near(
        logits_of(routed, tokens, in_mode(mode)),
        logits_of(control, tokens, in_mode(mode)),
        {2e-4, 2e-4},
        kind));
  }
}

std::vector<Tensor> gradients_of(const MetaAttentionLM& model, RouteMode mode) {
  for (const NamedTensor& named : model.parameters()) autograd::set_grad(named.tensor, {});
  const Tensor tokens = random_tokens(2, 130, 31, 6);
  const Tensor targets = random_tokens(2, 130, 31, 7);
  StepOptions options = in_mode(mode);
  options.training = true;
  options.hold_cost = true;
  autograd::backward(model.forward(tokens, targets, options).objective);
  std::vector<Tensor> grads;
  for (const NamedTensor& named : model.parameters()) grads.push_back(autograd::grad(named.tensor));
  return grads;
}

TEST(MetaAttention, ThreadCountDoesNotChangeABit) {
  for (const RouteMode mode : {RouteMode::soft, RouteMode::straight_through}) {
    std::vector<std::vector<Tensor>> runs;
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      CpuContext context{pool};
      const ContextScope scope(context);
      runs.push_back(gradients_of(MetaAttentionLM(small_config(), 3), mode));
    }
    for (size_t i = 0; i < runs[0].size(); ++i) {
      ASSERT_TRUE(runs[0][i].defined()) << i;
      EXPECT_TRUE(bit_equal(runs[1][i], runs[0][i], "2 threads"));
      EXPECT_TRUE(bit_equal(runs[2][i], runs[0][i], "3 threads"));
    }
  }
}

// Every parameter of a soft training step gets the gradient that differences of the objective show,
// along one random direction per parameter.
TEST(MetaAttention, ObjectiveGradientsMatchDifferences) {
  MetaAttentionConfig config = small_config();
  config.posterior = "mean";
  config.elbo_weight = 0.1;
  config.target_cost = 0.1;
  config.multiplier_rate = 1;
  MetaAttentionLM model = lively_model(config);
  ModelOutput dear;
  dear.expected_cost = 3.1;
  model.update_multiplier(dear);
  ASSERT_NEAR(model.multiplier(), 3.0, 1e-6);
  const auto grads = gradients_of(model, RouteMode::soft);
  const Tensor tokens = random_tokens(2, 130, 31, 6);
  const Tensor targets = random_tokens(2, 130, 31, 7);
  StepOptions options = in_mode(RouteMode::soft);
  options.training = true;
  options.hold_cost = true;
  auto objective = [&] {
    const autograd::NoGrad no_grad;
    return double(model.forward(tokens, targets, options).objective.item<float>());
  };
  const auto parameters = model.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor direction = randn(parameters[i].tensor.shape(), 17, i);
    const Tensor origin = clone(parameters[i].tensor);
    double expected = 0;
    double length = 0;
    for (int64_t j = 0; j < direction.numel(); ++j) {
      // Following the gradient's sign keeps the sum far above the rounding of an f32 loss.
      const float g = grads[i].data<float>()[j];
      float& d = direction.data<float>()[j];
      d = g < 0 ? -std::abs(d) : std::abs(d);
      expected += double(g) * double(d);
      length = std::max(length, std::abs(double(d)));
    }
    const double step = 2e-3 / length;
    auto at = [&](double distance) {
      for (int64_t j = 0; j < direction.numel(); ++j) {
        parameters[i].tensor.data<float>()[j] =
            float(double(origin.data<float>()[j]) + distance * double(direction.data<float>()[j]));
      }
      const double value = objective();
      copy_into(parameters[i].tensor, origin);
      return value;
    };
    const double numeric = (at(step) - at(-step)) / (2 * step);
    // An f32 objective of about 10 carries 1e-6 of rounding, divided by the step.
    EXPECT_NEAR(numeric, expected, 0.03 * std::abs(expected) + 4e-6 / step) << parameters[i].name;
  }
}

TEST(MetaAttention, MultiplierRisesAboveTheTargetAndStopsAtZero) {
  MetaAttentionConfig config = small_config();
  config.target_cost = 0.4;
  config.multiplier_rate = 0.5;
  MetaAttentionLM model(config, 1);
  ModelOutput output;
  output.expected_cost = 0.8;
  model.update_multiplier(output);
  EXPECT_NEAR(model.multiplier(), 0.2, 1e-6);
  output.expected_cost = 0.0;
  model.update_multiplier(output);
  model.update_multiplier(output);
  EXPECT_EQ(model.multiplier(), 0.0);
}

TEST(MetaAttention, HoldingTheCostAddsItsPriceToTheObjective) {
  MetaAttentionConfig config = small_config();
  config.target_cost = 0.4;
  config.multiplier_rate = 0.5;
  MetaAttentionLM model(config, 1);
  ModelOutput above;
  above.expected_cost = 0.8;
  model.update_multiplier(above);
  const Tensor tokens = random_tokens(1, 40, config.vocabulary, 8);
  StepOptions options = in_mode(RouteMode::soft);
  options.training = true;
  const autograd::NoGrad no_grad;
  const auto objective = [&](bool hold) {
    options.hold_cost = hold;
    return double(model.forward(tokens, tokens, options).objective.item<float>());
  };
  const double cost = model.forward(tokens, tokens, options).expected_cost;
  EXPECT_GT(cost, 0.3);
  EXPECT_NEAR(objective(true) - objective(false), 0.2 * cost, 2e-6);
}

// Layers of one posterior draw different weights, and only training draws any.
TEST(MetaAttention, EveryLayerAndStepDrawsNoiseOfItsOwn) {
  const MetaAttentionLM model(small_config(), 3);
  for (const NamedTensor& named : model.parameters()) {
    if (named.name.find("controller") != std::string::npos) fill(named.tensor, 0);
  }
  const Tensor tokens = random_tokens(1, 30, 31, 8);
  const autograd::NoGrad no_grad;
  StepOptions options = in_mode(RouteMode::soft);
  const auto weights = [&](size_t layer) {
    return model.forward(tokens, {}, options).layers[layer].decision.weights;
  };
  const Tensor mean = weights(0);
  EXPECT_TRUE(bit_equal(weights(1), mean));
  options.seed += 1;
  EXPECT_TRUE(bit_equal(weights(0), mean));
  options.training = true;
  const Tensor drawn = weights(0);
  EXPECT_FALSE(bit_equal(drawn, mean));
  EXPECT_TRUE(bit_equal(weights(0), drawn));
  EXPECT_FALSE(bit_equal(weights(1), drawn));
  options.step += 1;
  EXPECT_FALSE(bit_equal(weights(0), drawn));
}

TEST(MetaAttention, ShuffledRoutesKeepTheCounts) {
  const MetaAttentionLM model = lively_model(small_config());
  const Tensor tokens = random_tokens(2, 150, 31, 8);
  const autograd::NoGrad no_grad;
  const ModelOutput hard = model.forward(tokens, {}, in_mode(RouteMode::hard));
  const ModelOutput random = model.forward(tokens, {}, in_mode(RouteMode::random));
  // The first layer sees the same input in both modes.
  const auto ids = hard.layers[0].decision.ids.to_vector<int32_t>();
  const auto shuffled = random.layers[0].decision.ids.to_vector<int32_t>();
  for (const auto begin : {0, 150}) {
    const std::vector<int32_t> row(ids.begin() + begin, ids.begin() + begin + 150);
    const std::vector<int32_t> other(shuffled.begin() + begin, shuffled.begin() + begin + 150);
    EXPECT_TRUE(std::is_permutation(row.begin(), row.end(), other.begin())) << begin;
    // Two orders of routes of which none has more than four fifths differ in a third of the places.
    int moved = 0;
    for (size_t t = 0; t < row.size(); ++t) moved += row[t] != other[t] ? 1 : 0;
    EXPECT_GT(moved, 20) << begin;
  }
}

// Drawn from the same stream, the weights of a straight-through layer are those that a soft layer
// mixes by, and their entropy is the one to report.
TEST(MetaAttention, SampleEntropyIsThatOfTheWeightsThatDrewTheRoutes) {
  const MetaAttentionLM model = lively_model(small_config());
  const Tensor tokens = random_tokens(2, 50, 31, 8);
  StepOptions options = in_mode(RouteMode::soft);
  options.training = true;
  options.statistics = true;
  const autograd::NoGrad no_grad;
  const auto weights =
      model.forward(tokens, {}, options).layers[0].decision.weights.to_vector<float>();
  double expected = 0;
  for (const float weight : weights) {
    if (weight > 0) expected -= double(weight) * std::log(double(weight));
  }
  expected /= std::log(3.0) * double(weights.size() / kExperts);
  options.mode = RouteMode::straight_through;
  const RouteStats stats = model.forward(tokens, {}, options).layers[0].decision.stats;
  EXPECT_NEAR(stats.sample_entropy, expected, 1e-5);
  EXPECT_GT(std::abs(stats.entropy - expected), 0.01) << "the mean must not pass for the sample";
}

TEST(MetaAttention, ModelsOfOneSeedShareTheirCommonParameters) {
  MetaAttentionConfig config = small_config();
  const MetaAttentionLM routed(config, 4);
  config.layer_kinds = {"window", "full"};
  const MetaAttentionLM control(config, 4);
  std::map<std::string, Tensor> values;
  for (const NamedTensor& named : routed.parameters()) values[named.name] = named.tensor;
  for (const NamedTensor& named : control.parameters()) {
    EXPECT_TRUE(bit_equal(values.at(named.name), named.tensor, named.name));
  }
}

// Multiply-adds of one head and unit of width, counted loop by loop.
TEST(MetaAttention, PricesAreTheCountedProducts) {
  MetaAttentionConfig config = small_config();
  config.context = 1024;
  constexpr int64_t kChunk = 32;  // of linear attention
  const int64_t D = config.head_width();
  for (const int64_t T : {32, 96, 1024}) {
    double full = 0, window = 0, linear = 0;
    for (int64_t t = 0; t < T; ++t) {
      full += 2 * double(t + 1);
      window += 2 * double(std::min(t + 1, config.window));
      linear += 2 * double(D + 1) + 2 * double(t % kChunk + 1);
    }
    const auto costs = expert_costs(config, T);
    EXPECT_EQ(costs[0], 1.0);
    EXPECT_NEAR(costs[2], window / full, 1e-12);
    EXPECT_NEAR(costs[1], linear / full, 0.02 * linear / full) << "half a chunk on average";
  }
}

TEST(MetaAttention, RefusesBadInput) {
  MetaAttentionConfig config = small_config();
  const MetaAttentionLM model(config, 1);
  SLUICE_EXPECT_THROW(
      model.forward(zeros({1, 201}, {DType::i32, {}}), {}, {}), ShapeError, "T <= 200");
  config.kv_heads = 3;
  SLUICE_EXPECT_THROW(MetaAttentionLM(config, 1), ArgumentError, "kv_heads");
  config = small_config();
  config.layer_kinds = {"routed", "windw"};
  SLUICE_EXPECT_THROW(MetaAttentionLM(config, 1), ArgumentError, "did you mean 'window'");
  config.layer_kinds = {"given"};
  const MetaAttentionLM given(config, 1);
  SLUICE_EXPECT_THROW(
      given.forward(zeros({1, 5}, {DType::i32, {}}), {}, {}), ShapeError, "full_mask");
}

}  // namespace
}  // namespace sluice
