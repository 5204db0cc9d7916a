#include "models/route_decision.h"

#include "engine/errors.h"
#include "models/routes.h"
#include "ops/binary.h"
#include "ops/dirichlet.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/unary.h"

namespace sluice {
namespace {

using Weights = std::array<double, kExperts>;

Tensor row_tensor(const Weights& values) {
  return from_values(std::vector<float>(values.begin(), values.end()), {kExperts});
}

Tensor constant_weights(int64_t batch, int64_t tokens, Weights weights) {
  double sum = 0;
  for (const double value : weights) sum += value;
  const Tensor out = empty({batch, tokens, kExperts});
  for (int64_t i = 0; i < out.numel(); ++i) {
    out.data<float>()[i] = float(weights[size_t(i % kExperts)] / sum);
  }
  return out;
}

// w_k^s / sum_j w_j^s; the floor keeps the logarithm of a weight that underflowed finite.
Tensor sharpen(const Tensor& weights, double sharpness) {
  if (sharpness == 1.0) return weights;
  return ops::softmax(ops::mul(ops::log(ops::add(weights, 1e-12)), sharpness));
}

// The second word of a key is the stream; a layer's purposes are neighbours.
PhiloxKey purpose(PhiloxKey key, uint64_t number) { return {key.seed, key.stream + number}; }

Tensor training_weights(
    const Posterior& posterior,
    const MetaAttentionConfig& config,
    const StepOptions& options,
    PhiloxKey key) {
  const bool sampled = options.training && config.posterior == "sample";
  const Tensor weights =
      sampled ? ops::dirichlet_sample(posterior.concentration, purpose(key, 1)) : posterior.mean();
  return sharpen(weights, options.sharpness);
}

}  // namespace

bool reads_posterior(RouteMode mode) {
  return mode == RouteMode::soft || mode == RouteMode::straight_through ||
         mode == RouteMode::hard || mode == RouteMode::random;
}

RouteDecision decide_routed(
    const Posterior& posterior,
    int64_t batch,
    int64_t tokens,
    const MetaAttentionConfig& config,
    int64_t layer,
    const StepOptions& options,
    PhiloxKey key) {
  const Weights prior = prior_counts(config);
  const Weights costs = expert_costs(config, tokens);
  RouteDecision decision;
  Tensor drawn_from;  // the weights that a straight-through layer drew its routes from
  switch (options.mode) {
    case RouteMode::soft:
      decision.weights = training_weights(posterior, config, options, key);
      break;
    case RouteMode::straight_through:
      drawn_from = training_weights(posterior, config, options, key);
      decision.ids = ops::categorical_sample(drawn_from, purpose(key, 2));
      decision.drawn_weight = route_weights(drawn_from, decision.ids);
      break;
    case RouteMode::hard:
      decision.ids = argmax_routes(posterior.concentration);
      break;
    case RouteMode::random:
      decision.ids = shuffle_routes(argmax_routes(posterior.concentration), purpose(key, 3));
      break;
    case RouteMode::prior:
      decision.weights = constant_weights(batch, tokens, prior);
      break;
    case RouteMode::uniform:
      decision.weights = constant_weights(batch, tokens, {1, 1, 1});
      break;
    case RouteMode::warm:
      SLUICE_CHECK(
          !config.warm_kinds.empty(), ArgumentError, "model: mode 'warm' needs warm_kinds");
      decision.ids = constant_routes(batch, tokens, config.warm_expert(layer));
      break;
    case RouteMode::full:
      decision.ids = constant_routes(batch, tokens, Expert::full);
      break;
    case RouteMode::linear:
      decision.ids = constant_routes(batch, tokens, Expert::linear);
      break;
    case RouteMode::window:
      decision.ids = constant_routes(batch, tokens, Expert::window);
      break;
  }
  const bool learns =
      options.mode == RouteMode::soft || options.mode == RouteMode::straight_through;
  if (options.training && learns) {
    decision.kl = ops::mean(ops::dirichlet_kl(posterior.concentration, row_tensor(prior)));
    const Tensor priced = ops::mul(posterior.mean(), row_tensor(costs));
    decision.cost = ops::mean(ops::sum(priced, {-1}));
  }
  if (options.statistics) {
    const Tensor& used = drawn_from.defined() ? drawn_from : decision.weights;
    decision.stats = posterior_stats(posterior.concentration, used, costs, prior);
  }
  return decision;
}

RouteDecision decide_control(
    LayerKind kind,
    int64_t batch,
    int64_t tokens,
    const MetaAttentionConfig& config,
    const StepOptions& options,
    PhiloxKey key) {
  RouteDecision decision;
  if (kind == LayerKind::uniform) {
    decision.weights = constant_weights(batch, tokens, {1, 1, 1});
  } else if (kind == LayerKind::prior) {
    decision.weights = constant_weights(batch, tokens, prior_counts(config));
  } else if (kind == LayerKind::random) {
    const auto& shares = config.random_shares;
    decision.ids = random_routes(batch, tokens, {shares[0], shares[1], shares[2]}, purpose(key, 0));
  } else if (kind == LayerKind::given) {
    const Shape expected({batch, tokens});
    SLUICE_CHECK(
        options.full_mask.defined() && options.full_mask.shape() == expected,
        ShapeError,
        "model: full_mask must be {} for layers of kind 'given', got {}",
        to_string(expected),
        describe(options.full_mask));
    decision.ids = given_routes(options.full_mask);
  }
  return decision;
}

}  // namespace sluice
