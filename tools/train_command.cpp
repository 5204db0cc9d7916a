// `sluice train`.
#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/core.h>

#include "engine/errors.h"
#include "models/checkpoint.h"
#include "models/training_run.h"
#include "tools/commands.h"
#include "tools/interrupt.h"

namespace sluice::tools {
namespace {

/// The configuration of the run in `folder`: from its newest checkpoint where a kill came before
/// config.json was written.
nlohmann::json saved_config(const std::string& folder) {
  const std::string saved = folder + "/config.json";
  if (std::filesystem::exists(saved)) return read_json(saved);
  const auto checkpoints = list_checkpoints(folder);
  SLUICE_CHECK(
      !checkpoints.empty(),
      ArgumentError,
      "{}: holds no run to resume; begin one with --config or without --resume",
      folder);
  return read_state(checkpoints.back().path).value("config", nlohmann::json());
}

RunConfig read_config(const TrainCommand& command, const CommonOptions& common) {
  nlohmann::json document = nlohmann::json::object();
  if (!command.config.empty()) {
    document = read_json(command.config);
  } else if (command.resume) {
    document = saved_config(command.output);
  }
  if (common.seed) apply_override(document, fmt::format("train.seed={}", *common.seed));
  for (const std::string& assignment : command.overrides) apply_override(document, assignment);
  RunConfig config = run_config_from_json(document);
  // Set here and not in the document: a file may be called 12 or null.
  if (!command.text.empty()) config.data.text = command.text;
  SLUICE_CHECK(
      !config.data.text.empty(),
      ArgumentError,
      "train: no text: give --text FILE or data.text in the configuration");
  // The run may be resumed or evaluated from another folder.
  config.data.text = std::filesystem::absolute(config.data.text).lexically_normal().string();
  return config;
}

}  // namespace

void run_train(const TrainCommand& command, const CommonOptions& common) {
  const RunConfig config = read_config(command, common);
  const InterruptScope interrupts;
  const RunResult result = run_training(
      config,
      {.folder = command.output,
       .resume = command.resume,
       .start_from = command.start_from,
       .stop = &InterruptScope::requested});
  if (common.json) {
    const nlohmann::json json = {
        {"finished", result.finished},
        {"step", result.step},
        {"checkpoint", result.checkpoint},
        {"loss", result.loss}};
    fmt::print("{}\n", json.dump());
  } else if (result.finished) {
    fmt::print("finished {} steps: {}\n", result.step, result.checkpoint);
  } else {
    fmt::print(
        "stopped after step {} of {}: {}\ncontinue with: sluice train --resume --out {}\n",
        result.step,
        config.train.steps,
        result.checkpoint,
        command.output);
  }
}

}  // namespace sluice::tools
