// What a layer decides before any attention runs: weights for every expert, or one expert a token.
#pragma once

#include "engine/philox.h"
#include "engine/tensor.h"
#include "models/controller.h"
#include "models/meta_attention_config.h"
#include "models/route_stats.h"

namespace sluice {

/// How one call of the model runs its routed layers, and what it reports.
struct StepOptions {
  RouteMode mode = RouteMode::hard;
  double sharpness = 1.0;   ///< posterior weights are raised to this power and renormalised
  bool hold_cost = false;   ///< add multiplier * expected cost to the objective
  bool training = false;    ///< draw where the posterior is sampled
  bool statistics = false;  ///< fill RouteStats
  bool unfused = false;     ///< gather, dense kernel, scatter instead of query lists
  uint64_t seed = 0;
  uint64_t step = 0;  ///< with the seed and the layer: the random stream
  Tensor full_mask;   ///< (B, T) u8, for layers of kind `given`
};

struct RouteDecision {
  Tensor weights;       ///< (B, T, 3): every expert runs, mixed by these; undefined when ids is set
  Tensor ids;           ///< (B, T) i32: one expert runs per token
  Tensor drawn_weight;  ///< (B, T): probability of the drawn expert, straight-through only
  Tensor kl;         ///< mean KL of the posterior to the prior, scalar; when the posterior trains
  Tensor cost;       ///< mean expected cost, all-full = 1, scalar; when the posterior trains
  RouteStats stats;  ///< filled on request; routed layers only
};

/// True for the modes whose routes or weights come from the posterior.
bool reads_posterior(RouteMode mode);

/// The decision of a routed layer from its posterior, in the mode of `options`. Divergence and cost
/// are part of the objective only where the task trains the posterior too, in the modes soft and
/// straight_through: elsewhere they would pull it to the prior and to the cheapest expert.
///
/// Shapes  posterior: (B, T, 3); undefined where reads_posterior(mode) is false and no statistics
///         are wanted
/// Grads   through weights, drawn_weight, kl and cost to the posterior
RouteDecision decide_routed(
    const Posterior& posterior,
    int64_t batch,
    int64_t tokens,
    const MetaAttentionConfig& config,
    int64_t layer,
    const StepOptions& options,
    PhiloxKey key);

/// The decision of a control layer that mixes or draws: uniform, prior, random, given.
/// Throws ShapeError when `given` lacks its mask.
RouteDecision decide_control(
    LayerKind kind,
    int64_t batch,
    int64_t tokens,
    const MetaAttentionConfig& config,
    const StepOptions& options,
    PhiloxKey key);

}  // namespace sluice
