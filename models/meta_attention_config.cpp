#include "models/meta_attention_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include <fmt/format.h>

#include "engine/errors.h"
#include "models/config_fields.h"

namespace sluice {
namespace {

constexpr int64_t kMaxWidth = 65536;

constexpr std::string_view kModeNames[] = {
    "soft",
    "straight_through",
    "hard",
    "random",
    "prior",
    "uniform",
    "warm",
    "full",
    "linear",
    "window"};

constexpr std::string_view kExpertNames[] = {"full", "linear", "window"};

constexpr std::string_view kKindNames[] = {
    "routed", "full", "linear", "window", "uniform", "prior", "random", "given"};

void require_range(const char* name, double value, double low, double high) {
  SLUICE_CHECK(
      value >= low && value <= high,
      ArgumentError,
      "config: {} must be in [{}, {}], got {}",
      name,
      low,
      high,
      value);
}

void require_word(
    const char* name, std::string_view word, std::span<const std::string_view> known) {
  SLUICE_CHECK(
      std::find(known.begin(), known.end(), word) != known.end(),
      ArgumentError,
      "config: {} must be one of {}, got '{}'; did you mean '{}'?",
      name,
      fmt::join(known, ", "),
      word,
      nearest_name(word, {known.begin(), known.end()}));
}

void validate_sizes(const MetaAttentionConfig& config) {
  require_range("vocabulary", double(config.vocabulary), 2, 1 << 20);
  require_range("layers", double(config.layers), 1, 1024);
  require_range("width", double(config.width), 1, kMaxWidth);
  require_range("heads", double(config.heads), 1, double(config.width));
  require_range("kv_heads", double(config.kv_heads), 1, double(config.heads));
  require_range("feed_forward", double(config.feed_forward), 1, 1 << 20);
  require_range("context", double(config.context), 1, 1 << 24);
  require_range("window", double(config.window), 1, 1 << 24);
  require_range("rope_theta", config.rope_theta, 1, 1e9);
  require_range("controller_width", double(config.controller_width), 1, 65536);
  SLUICE_CHECK(
      config.width % config.heads == 0 && config.head_width() % 2 == 0 &&
          config.head_width() <= 256,
      ArgumentError,
      "config: width / heads must be an even number up to 256, got {} / {}",
      config.width,
      config.heads);
  SLUICE_CHECK(
      config.heads % config.kv_heads == 0,
      ArgumentError,
      "config: heads must be a multiple of kv_heads, got {} and {}",
      config.heads,
      config.kv_heads);
}

void validate_phases(const MetaAttentionConfig& config) {
  SLUICE_CHECK(!config.phases.empty(), ArgumentError, "config: phases must not be empty");
  SLUICE_CHECK(
      config.warm_kinds.empty() || int64_t(config.warm_kinds.size()) == config.layers,
      ArgumentError,
      "config: warm_kinds must be empty or have {} entries, got {}",
      config.layers,
      config.warm_kinds.size());
  for (const std::string& kind : config.warm_kinds) require_word("warm_kinds", kind, kExpertNames);
  require_range("warm_evidence", config.warm_evidence, 0, 1e3);
  double before = 0;
  for (const RoutePhase& phase : config.phases) {
    SLUICE_CHECK(
        phase.mode != RouteMode::warm || !config.warm_kinds.empty(),
        ArgumentError,
        "config: a phase of mode 'warm' needs warm_kinds, one per layer");
    SLUICE_CHECK(
        phase.until > before && phase.until <= 1.0,
        ArgumentError,
        "config: phases must end at rising shares of the run up to 1, got {} after {}",
        phase.until,
        before);
    require_range("sharpness", phase.sharpness, 0.01, 1000);
    // Elsewhere the posterior does not train: the cost reads 0, and the multiplier would fall to 0.
    SLUICE_CHECK(
        !phase.hold_cost || phase.mode == RouteMode::soft ||
            phase.mode == RouteMode::straight_through,
        ArgumentError,
        "config: a phase with hold_cost must be of mode 'soft' or 'straight_through', got '{}'",
        name_of(phase.mode));
    before = phase.until;
  }
}

std::vector<RoutePhase> phases_from_json(const nlohmann::json& list, const std::string& path) {
  SLUICE_CHECK(
      list.is_array(), ArgumentError, "config: {} must be a list, got {}", path, list.dump());
  std::vector<RoutePhase> phases;
  for (const nlohmann::json& entry : list) {
    ConfigFields fields(entry, fmt::format("{}[{}]", path, phases.size()));
    RoutePhase phase;
    std::string mode(name_of(phase.mode));
    fields.read("until", phase.until);
    fields.read("mode", mode);
    fields.read("hold_cost", phase.hold_cost);
    fields.read("sharpness", phase.sharpness);
    fields.finish();
    phase.mode = parse_route_mode(mode);
    phases.push_back(phase);
  }
  return phases;
}

// The one list of keys: each visit names a field once, for writing, reading and checking.
template <class Config, class Visit>
void visit_fields(Config& config, Visit&& visit) {
  visit("vocabulary", config.vocabulary);
  visit("layers", config.layers);
  visit("width", config.width);
  visit("heads", config.heads);
  visit("kv_heads", config.kv_heads);
  visit("feed_forward", config.feed_forward);
  visit("context", config.context);
  visit("window", config.window);
  visit("rope_theta", config.rope_theta);
  visit("layer_kinds", config.layer_kinds);
  visit("random_shares", config.random_shares);
  visit("controller_width", config.controller_width);
  visit("separate_projections", config.separate_projections);
  visit("posterior", config.posterior);
  visit("prior_floor", config.prior_floor);
  visit("prior_scale", config.prior_scale);
  visit("elbo_weight", config.elbo_weight);
  visit("costs", config.costs);
  visit("cost_table", config.cost_table);
  visit("target_cost", config.target_cost);
  visit("multiplier_rate", config.multiplier_rate);
  visit("warm_kinds", config.warm_kinds);
  visit("warm_evidence", config.warm_evidence);
}

}  // namespace

std::string_view name_of(Expert expert) {
  switch (expert) {
    case Expert::full:
      return "full";
    case Expert::linear:
      return "linear";
    case Expert::window:
      return "window";
  }
  return "?";
}

std::string_view name_of(RouteMode mode) { return kModeNames[static_cast<size_t>(mode)]; }

std::string_view name_of(LayerKind kind) { return kKindNames[static_cast<size_t>(kind)]; }

RouteMode parse_route_mode(std::string_view text) {
  const auto* found = std::find(std::begin(kModeNames), std::end(kModeNames), text);
  require_word("mode", text, kModeNames);
  return static_cast<RouteMode>(found - std::begin(kModeNames));
}

LayerKind MetaAttentionConfig::kind(int64_t layer) const {
  const std::string& name = layer_kinds.size() == 1 ? layer_kinds[0] : layer_kinds[size_t(layer)];
  const auto* found = std::find(std::begin(kKindNames), std::end(kKindNames), name);
  return static_cast<LayerKind>(found - std::begin(kKindNames));
}

Expert MetaAttentionConfig::warm_expert(int64_t layer) const {
  const std::string& name = warm_kinds[size_t(layer)];
  const auto* found = std::find(std::begin(kExpertNames), std::end(kExpertNames), name);
  return static_cast<Expert>(found - std::begin(kExpertNames));
}

void validate(const MetaAttentionConfig& config) {
  validate_sizes(config);
  SLUICE_CHECK(
      config.layer_kinds.size() == 1 || int64_t(config.layer_kinds.size()) == config.layers,
      ArgumentError,
      "config: layer_kinds must have 1 or {} entries, got {}",
      config.layers,
      config.layer_kinds.size());
  for (const std::string& kind : config.layer_kinds) require_word("layer_kinds", kind, kKindNames);
  const auto& shares = config.random_shares;
  SLUICE_CHECK(
      shares.size() == kExperts && *std::min_element(shares.begin(), shares.end()) >= 0 &&
          std::abs(std::accumulate(shares.begin(), shares.end(), 0.0) - 1.0) < 1e-6,
      ArgumentError,
      "config: random_shares must be {} numbers >= 0 that add up to 1, got [{}]",
      kExperts,
      fmt::join(shares, ", "));
  constexpr std::string_view kPosteriors[] = {"sample", "mean"};
  constexpr std::string_view kCosts[] = {"flops", "paper", "table"};
  require_word("posterior", config.posterior, kPosteriors);
  require_word("costs", config.costs, kCosts);
  require_range("prior_floor", config.prior_floor, 1e-6, 1e6);
  require_range("prior_scale", config.prior_scale, 0, 1e6);
  require_range("elbo_weight", config.elbo_weight, 0, 1e6);
  if (config.costs == "table") {
    SLUICE_CHECK(
        config.cost_table.size() == kExperts &&
            *std::min_element(config.cost_table.begin(), config.cost_table.end()) > 0,
        ArgumentError,
        "config: cost_table must be {} positive numbers, got [{}]",
        kExperts,
        fmt::join(config.cost_table, ", "));
  }
  require_range("target_cost", config.target_cost, 0, 1);
  require_range("multiplier_rate", config.multiplier_rate, 0, 1e3);
  validate_phases(config);
}

const RoutePhase& phase_at(const MetaAttentionConfig& config, int64_t step, int64_t steps) {
  for (const RoutePhase& phase : config.phases) {
    if (double(step) < phase.until * double(steps)) return phase;
  }
  return config.phases.back();
}

std::array<double, kExperts> expert_costs(const MetaAttentionConfig& config, int64_t tokens) {
  if (config.costs == "paper") return {1.0, 0.15, 0.30};
  if (config.costs == "table") {
    const auto& table = config.cost_table;
    return {1.0, table[1] / table[0], table[2] / table[0]};
  }
  // Multiply-adds per query and unit of head width, causal, averaged over the positions. Softmax:
  // two products with every visible key. Linear: the state of D + 1 columns is read once and
  // advanced once, and there are two products with half a chunk of kLinearChunk keys.
  const double T = double(std::max<int64_t>(1, tokens));
  const double W = std::min(T, double(config.window));
  const double D = double(config.head_width());
  const double full = T + 1;
  const double window = 2 * (W * (W + 1) / 2 + (T - W) * W) / T;
  constexpr double kLinearChunk = 32;
  const double linear = 2 * (D + 1) + std::min(T, kLinearChunk);
  return {1.0, linear / full, window / full};
}

std::array<double, kExperts> prior_counts(const MetaAttentionConfig& config) {
  std::array<double, kExperts> beta = expert_costs(config, config.context);
  for (double& value : beta) {
    value = config.prior_floor + config.prior_scale * std::max(0.0, 1.0 - value);
  }
  return beta;
}

nlohmann::json to_json(const MetaAttentionConfig& config) {
  nlohmann::json json;
  visit_fields(config, [&](const char* key, const auto& value) { json[key] = value; });
  json["phases"] = nlohmann::json::array();
  for (const RoutePhase& phase : config.phases) {
    json["phases"].push_back(
        {{"until", phase.until},
         {"mode", name_of(phase.mode)},
         {"hold_cost", phase.hold_cost},
         {"sharpness", phase.sharpness}});
  }
  return json;
}

MetaAttentionConfig meta_attention_config_from_json(const nlohmann::json& json) {
  MetaAttentionConfig config;
  ConfigFields fields(json, "model");
  fields.read("heads", config.kv_heads);
  fields.read("width", config.width);
  // Within the range that validate() asks of the width: beyond it the product may overflow.
  config.feed_forward = 4 * std::clamp<int64_t>(config.width, 0, kMaxWidth);
  visit_fields(config, [&](const char* key, auto& value) { fields.read(key, value); });
  const nlohmann::json& phases = fields.nested("phases");
  fields.finish();
  if (!phases.is_null()) config.phases = phases_from_json(phases, fields.full_name("phases"));
  validate(config);
  return config;
}

}  // namespace sluice
