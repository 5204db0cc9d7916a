// The loss of a model on held-out text in one mode, what its routes were, and what attention cost.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/cost_model.h"
#include "models/meta_attention.h"

namespace sluice {

struct EvaluateOptions {
  RouteMode mode = RouteMode::hard;  ///< of the routed layers; others ignore it
  double sharpness = 1.0;            ///< of the weights, in the mode soft: see soft_sharpness
  int64_t batch = 2;
  int64_t tokens = 1024;
  int64_t first_window = 0;
  int64_t windows = 0;  ///< from first_window on; 0: all that are left
  uint64_t seed = 1;    ///< of the modes that draw
  /// Line prefixes: the loss on the values of such lines is reported apart.
  std::vector<std::string> value_fields;
  /// Line prefixes of the mask of layers of kind `given`.
  std::vector<std::string> given_fields;
  const AttentionCostModel* costs = nullptr;  ///< for predicted_ms; null: not predicted
  std::function<void(int64_t done, int64_t total)> progress;
};

/// Shares of tokens that ran on each expert, or, where every expert ran on every token, mean
/// weights.
struct LayerShares {
  std::string kind;
  std::array<double, kExperts> all{};
  std::array<double, kExperts> value{};  ///< queries that predict a value byte
  std::array<double, kExperts> other{};
};

struct Evaluation {
  RouteMode mode = RouteMode::hard;
  int64_t windows = 0;
  int64_t bytes = 0;        ///< predicted
  int64_t value_bytes = 0;  ///< of those, values of the fields
  double loss = 0;          ///< nats per byte
  double value_loss = 0;    ///< nats per value byte; NaN without any
  double bits_per_byte = 0;
  double attention_ms = 0;   ///< forward, all layers, per batch; median
  double controller_ms = 0;  ///< likewise
  double predicted_ms =
      0;  ///< mean of the cost model's predictions; NaN without a cost model or a full batch
  std::vector<LayerShares> layers;

  /// Attention and controller: what a mode really costs.
  double measured_ms() const { return attention_ms + controller_ms; }
};

/// Evaluates on consecutive windows of `text`, so two models see the same bytes.
/// Throws ArgumentError when the text holds no window.
Evaluation evaluate(
    const MetaAttentionLM& model, std::span<const uint8_t> text, const EvaluateOptions& options);

/// The sharpness that a model was last trained with in the mode soft; 1 when it never was.
double soft_sharpness(const MetaAttentionConfig& config);

nlohmann::json to_json(const Evaluation& evaluation);

}  // namespace sluice
