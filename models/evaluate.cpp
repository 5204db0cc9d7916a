// See evaluate.h.
#include "models/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "models/batches.h"
#include "models/median.h"
#include "models/routes.h"
#include "models/text_data.h"

namespace sluice {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// Sums over queries, split by whether they predict a value byte.
struct Sums {
  std::array<std::array<double, kExperts>, 2> weight{};
};

/// The expert of a layer whose kind names one for every token.
std::optional<Expert> fixed_expert(LayerKind kind) {
  if (kind == LayerKind::full) return Expert::full;
  if (kind == LayerKind::linear) return Expert::linear;
  if (kind == LayerKind::window) return Expert::window;
  return std::nullopt;
}

/// Adds each query's expert or weights to the sums of its group.
void add_shares(
    const LayerOutput& layer, LayerKind kind, const std::vector<uint8_t>& is_value, Sums& sums) {
  const RouteDecision& decision = layer.decision;
  const auto fixed = fixed_expert(kind);
  const bool routed = decision.ids.defined();
  const auto ids = routed ? decision.ids.to_vector<int32_t>() : std::vector<int32_t>();
  const auto weights = routed || fixed ? std::vector<float>() : decision.weights.to_vector<float>();
  for (size_t query = 0; query < is_value.size(); ++query) {
    auto& group = sums.weight[is_value[query]];
    if (fixed) {
      group[size_t(*fixed)] += 1;
    } else if (routed) {
      group[size_t(ids[query])] += 1;
    } else {
      for (size_t e = 0; e < kExperts; ++e) group[e] += weights[query * kExperts + e];
    }
  }
}

/// What the cost model says of one layer: of its routes, of its one expert, or of all three.
double predict_ms(
    const LayerOutput& layer,
    LayerKind kind,
    const EvaluateOptions& options,
    int64_t rows,
    int64_t window) {
  const auto total = [&](const Tensor& ids) {
    double sum = 0;
    for (const double ms : options.costs->predict(ids, window)) sum += ms;
    return sum;
  };
  if (layer.decision.ids.defined()) return total(layer.decision.ids);
  if (const auto fixed = fixed_expert(kind)) {
    return total(constant_routes(rows, options.tokens, *fixed));
  }
  double sum = 0;
  for (const Expert expert : {Expert::full, Expert::linear, Expert::window}) {
    sum += total(constant_routes(rows, options.tokens, expert));
  }
  return sum;
}

std::array<double, kExperts> normalised(const std::array<double, kExperts>& sums) {
  const double total = sums[0] + sums[1] + sums[2];
  std::array<double, kExperts> shares{};
  if (total > 0) {
    for (size_t e = 0; e < kExperts; ++e) shares[e] = sums[e] / total;
  }
  return shares;
}

LayerShares shares_of(LayerKind kind, const Sums& sums) {
  LayerShares shares{.kind = std::string(name_of(kind))};
  std::array<double, kExperts> all{};
  for (size_t e = 0; e < kExperts; ++e) all[e] = sums.weight[0][e] + sums.weight[1][e];
  shares.all = normalised(all);
  shares.other = normalised(sums.weight[0]);
  shares.value = normalised(sums.weight[1]);
  return shares;
}

}  // namespace

Evaluation evaluate(
    const MetaAttentionLM& model, std::span<const uint8_t> text, const EvaluateOptions& options) {
  const MetaAttentionConfig& config = model.config();
  const int64_t T = options.tokens;
  Evaluation result{.mode = options.mode};
  const int64_t first = options.first_window;
  result.windows = consecutive_windows(static_cast<int64_t>(text.size()), T) - first;
  if (options.windows > 0) result.windows = std::min(result.windows, options.windows);
  SLUICE_CHECK(
      result.windows > 0,
      ArgumentError,
      "evaluate: the text must have a window of {} tokens after the first {}, got {} bytes",
      T,
      first,
      text.size());
  const auto value_mask = field_value_mask(text, options.value_fields);
  const auto given_mask = field_value_mask(text, options.given_fields);

  const autograd::NoGrad no_grad;
  std::vector<Sums> sums(static_cast<size_t>(config.layers));
  std::vector<double> attention_ms, controller_ms;
  double loss = 0, value_loss = 0, predicted = 0;
  int64_t priced = 0;  // batches that the cost model was asked about
  for (int64_t window = 0; window < result.windows; window += options.batch) {
    std::vector<int64_t> starts;
    for (int64_t row = window; row < std::min(window + options.batch, result.windows); ++row) {
      starts.push_back((first + row) * T);
    }
    const Batch batch = window_batch(text, T, starts);
    const ModelOutput output = model.forward(
        batch.tokens,
        batch.targets,
        {.mode = options.mode,
         .sharpness = options.sharpness,
         .seed = options.seed,
         .step = static_cast<uint64_t>(first + window),
         .full_mask = target_mask(given_mask, T, starts)});

    const auto losses = output.token_losses.to_vector<float>();
    const auto is_value = target_mask(value_mask, T, starts).to_vector<uint8_t>();
    for (size_t query = 0; query < losses.size(); ++query) {
      loss += losses[query];
      if (is_value[query] == 0) continue;
      value_loss += losses[query];
      ++result.value_bytes;
    }
    result.bytes += static_cast<int64_t>(losses.size());
    const auto rows = static_cast<int64_t>(starts.size());
    // The constants of the model were measured with whole batches.
    const bool price = options.costs != nullptr && rows == options.batch;
    if (price) ++priced;
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      const LayerOutput& done = output.layers[size_t(layer)];
      const LayerKind kind = config.kind(layer);
      add_shares(done, kind, is_value, sums[size_t(layer)]);
      if (price) predicted += predict_ms(done, kind, options, rows, config.window);
    }
    // A last batch of fewer windows would count as a fast one.
    if (rows == options.batch || attention_ms.empty()) {
      attention_ms.push_back(output.attention_ms);
      controller_ms.push_back(output.controller_ms);
    }
    if (options.progress) options.progress(window + rows, result.windows);
  }

  result.loss = loss / static_cast<double>(result.bytes);
  result.bits_per_byte = result.loss / std::numbers::ln2;
  result.value_loss =
      result.value_bytes > 0 ? value_loss / static_cast<double>(result.value_bytes) : kUnknown;
  result.attention_ms = median(attention_ms);
  result.controller_ms = median(controller_ms);
  result.predicted_ms = priced > 0 ? predicted / static_cast<double>(priced) : kUnknown;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    result.layers.push_back(shares_of(config.kind(layer), sums[size_t(layer)]));
  }
  return result;
}

double soft_sharpness(const MetaAttentionConfig& config) {
  double sharpness = 1.0;
  for (const RoutePhase& phase : config.phases) {
    if (phase.mode == RouteMode::soft) sharpness = phase.sharpness;
  }
  return sharpness;
}

nlohmann::json to_json(const Evaluation& evaluation) {
  nlohmann::json json = {
      {"mode", name_of(evaluation.mode)},
      {"windows", evaluation.windows},
      {"bytes", evaluation.bytes},
      {"value_bytes", evaluation.value_bytes},
      {"loss", evaluation.loss},
      {"value_loss", evaluation.value_loss},
      {"bits_per_byte", evaluation.bits_per_byte},
      {"attention_ms", evaluation.attention_ms},
      {"controller_ms", evaluation.controller_ms},
      {"predicted_ms", evaluation.predicted_ms},
      {"layers", nlohmann::json::array()}};
  for (const LayerShares& layer : evaluation.layers) {
    json["layers"].push_back(
        {{"kind", layer.kind},
         {"share", layer.all},
         {"value_share", layer.value},
         {"other_share", layer.other}});
  }
  return json;
}

}  // namespace sluice
