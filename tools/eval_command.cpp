// `sluice eval`.
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include <fmt/core.h>

#include "engine/errors.h"
#include "models/evaluate.h"
#include "models/progress.h"
#include "models/text_data.h"
#include "tools/commands.h"
#include "tools/load_model.h"

namespace sluice::tools {
namespace {

bool routes(const MetaAttentionConfig& config) {
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    if (config.kind(layer) == LayerKind::routed) return true;
  }
  return false;
}

std::vector<RouteMode> modes_of(const EvalCommand& command, const MetaAttentionConfig& config) {
  std::vector<RouteMode> modes;
  for (const std::string& mode : command.modes) modes.push_back(parse_route_mode(mode));
  if (!modes.empty()) return modes;
  if (!routes(config)) return {RouteMode::hard};
  return {
      RouteMode::hard,
      RouteMode::soft,
      RouteMode::random,
      RouteMode::prior,
      RouteMode::full,
      RouteMode::linear,
      RouteMode::window};
}

void print_shares(const LayerShares& layer, int64_t number) {
  fmt::print(
      "    layer {} {:<7}  full {:5.1f} %  linear {:5.1f} %  window {:5.1f} %  (full on values "
      "{:.1f} %, elsewhere {:.1f} %)\n",
      number,
      layer.kind,
      100 * layer.all[0],
      100 * layer.all[1],
      100 * layer.all[2],
      100 * layer.value[0],
      100 * layer.other[0]);
}

void print_text(const Evaluation& evaluation) {
  const std::string predicted =
      std::isnan(evaluation.predicted_ms)
          ? "not predicted"
          : fmt::format(
                "predicted {:.2f}, {:+.0f} %",
                evaluation.predicted_ms,
                100 * (evaluation.predicted_ms / evaluation.attention_ms - 1));
  fmt::print(
      "{:<17} {:.4f} nats/byte  {:.4f} bits/byte  {:.4f} on values  attention {:.2f} ms "
      "({})  controller {:.2f} ms\n",
      name_of(evaluation.mode),
      evaluation.loss,
      evaluation.bits_per_byte,
      evaluation.value_loss,
      evaluation.attention_ms,
      predicted,
      evaluation.controller_ms);
  for (size_t layer = 0; layer < evaluation.layers.size(); ++layer) {
    print_shares(evaluation.layers[layer], static_cast<int64_t>(layer) + 1);
  }
}

}  // namespace

void run_eval(const EvalCommand& command, const CommonOptions& common) {
  const LoadedModel loaded = load_model(command.checkpoint);
  const auto& [model, data, train] = loaded.config;
  const std::vector<RouteMode> modes = modes_of(command, model);  // a typo must not cost seconds
  const TextData text = read_text(
      command.text.empty() ? data.text : command.text,
      command.held_out > 0 ? command.held_out : data.held_out);
  const AttentionCostModel costs = measure_costs(model, train.batch, train.tokens);

  nlohmann::json results = nlohmann::json::array();
  for (const RouteMode mode : modes) {
    std::unique_ptr<Progress> progress;
    const auto advance = [&](int64_t done, int64_t total) {
      if (!progress) {
        progress = std::make_unique<Progress>(Progress::Options{
            .name = fmt::format("eval {}", name_of(mode)),
            .total = total,
            .terminal = is_terminal(stderr)});
      }
      progress->update(done, "");
      if (done == total) progress->finish();
    };
    const Evaluation evaluation = evaluate(
        *loaded.model,
        text.held_out(),
        {.mode = mode,
         .sharpness = mode == RouteMode::soft ? soft_sharpness(model) : 1.0,
         .batch = train.batch,
         .tokens = train.tokens,
         .windows = command.windows,
         .seed = common.seed.value_or(train.seed),
         .value_fields = data.value_fields,
         .given_fields = data.given_fields,
         .costs = &costs,
         .progress = advance});
    if (common.json) {
      results.push_back(to_json(evaluation));
    } else {
      print_text(evaluation);
    }
  }
  if (!common.json) return;
  const nlohmann::json result = {
      {"checkpoint", loaded.checkpoint},
      {"step", loaded.step},
      {"text", text.path},
      {"batch", train.batch},
      {"tokens", train.tokens},
      {"costs", to_json(costs)},
      {"modes", results}};
  fmt::print("{}\n", result.dump(2));
}

}  // namespace sluice::tools
