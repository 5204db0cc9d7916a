// Everything that fixes the architecture and the routing objective of a Meta-Attention model.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// The attention algorithms that a token can take, in the fixed order of routes and lists.
enum class Expert : int { full = 0, linear = 1, window = 2 };
inline constexpr int kExperts = 3;

std::string_view name_of(Expert expert);

/// How a routed layer turns its posterior into attention.
enum class RouteMode {
  soft,              ///< every expert on every token, weighted: trains, saves nothing
  straight_through,  ///< one drawn expert per token, gradient to the router through its weight
  hard,              ///< the expert of the largest posterior mean
  random,            ///< the hard routes of each batch row in random order: equal cost, no choice
  prior,             ///< every expert, weighted by the prior's mean: ignores the input
  uniform,           ///< every expert, weighted 1/3
  warm,              ///< every token of a layer to the layer's entry in warm_kinds
  full,              ///< every token to one expert
  linear,
  window,
};

std::string_view name_of(RouteMode mode);
/// Throws ArgumentError naming the nearest mode.
RouteMode parse_route_mode(std::string_view text);

/// What a layer's attention is: routed, or one of the controls.
enum class LayerKind {
  routed,  ///< each token's posterior decides
  full,    ///< one expert for every token
  linear,
  window,
  uniform,  ///< every expert, weighted 1/3
  prior,    ///< every expert, weighted by the prior's mean
  random,   ///< each token draws its expert with the shares of random_shares
  given,    ///< full where the caller's mask says so, the window elsewhere
};

std::string_view name_of(LayerKind kind);

/// One stretch of training and how its routed layers run.
struct RoutePhase {
  double until = 1.0;  ///< share of all steps at which the phase ends
  RouteMode mode = RouteMode::soft;
  bool hold_cost = false;  ///< the multiplier pulls the expected cost to target_cost
  double sharpness = 1.0;  ///< posterior weights are raised to this power and renormalised
};

struct MetaAttentionConfig {
  int64_t vocabulary = 256;
  int64_t layers = 4;
  int64_t width = 128;         ///< C
  int64_t heads = 4;           ///< H; the head width is C / H
  int64_t kv_heads = 4;        ///< heads % kv_heads == 0
  int64_t feed_forward = 512;  ///< F
  int64_t context = 1024;      ///< largest T; scales the controller's position feature
  int64_t window = 32;         ///< W visible keys, the current one included
  double rope_theta = 10000.0;

  /// One LayerKind per layer, or one for all.
  std::vector<std::string> layer_kinds = {"routed"};
  std::vector<double> random_shares = {1.0 / 3, 1.0 / 3, 1.0 / 3};

  int64_t controller_width = 64;
  /// Each expert owns its QKV and output projections, as published; shared otherwise.
  bool separate_projections = false;
  /// Training weights are a Dirichlet sample (`sample`, as published) or its mean (`mean`).
  std::string posterior = "sample";
  double prior_floor = 0.3;    ///< eps of beta_k = eps + beta0 (1 - c_k); published: 0.01
  double prior_scale = 1.0;    ///< beta0
  double elbo_weight = 0.001;  ///< w of the KL term; published: 1

  /// Prices of the experts: `flops` (at the actual T), `paper` (1, 0.15, 0.30) or `table`.
  std::string costs = "flops";
  std::vector<double> cost_table;  ///< full, linear, window, in any unit, when costs == "table"
  double target_cost = 0.0;        ///< mean over routed layers, all-full = 1; 0: not held
  double multiplier_rate = 0.02;   ///< step of the dual ascent on the target
  std::vector<RoutePhase> phases = {{1.0, RouteMode::soft, false, 1.0}};
  /// A fixed expert per layer for phases of mode `warm`: circuits that need long range form before
  /// tokens choose, since early in training a narrow window wins everywhere.
  std::vector<std::string> warm_kinds;
  /// Initial evidence for the warm expert, so that routing starts near where `warm` left off.
  double warm_evidence = 0.0;

  int64_t head_width() const { return width / heads; }
  /// Valid after validate().
  LayerKind kind(int64_t layer) const;
  /// Valid after validate() and only when warm_kinds is not empty.
  Expert warm_expert(int64_t layer) const;
};

/// Throws ArgumentError naming the field, what it must be and what it is.
void validate(const MetaAttentionConfig& config);

/// The phase that `step` of `steps` belongs to.
const RoutePhase& phase_at(const MetaAttentionConfig& config, int64_t step, int64_t steps);

/// Price of each expert per token at sequence length T, relative to full attention.
std::array<double, kExperts> expert_costs(const MetaAttentionConfig& config, int64_t tokens);

/// The prior's pseudo-counts beta_k = eps + beta0 (1 - c_k), priced at the context length: a
/// token's posterior must not change when the sequence grows.
std::array<double, kExperts> prior_counts(const MetaAttentionConfig& config);

nlohmann::json to_json(const MetaAttentionConfig& config);
/// Reads and validates; absent keys keep their defaults (kv_heads: heads, feed_forward: 4 * width),
/// unknown ones are an ArgumentError.
MetaAttentionConfig meta_attention_config_from_json(const nlohmann::json& json);

}  // namespace sluice
