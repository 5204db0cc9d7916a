// `sluice train`.
#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/core.h>

#include "engine/errors.h"
#include "models/training_run.h"
#include "tools/commands.h"
#include "tools/interrupt.h"

namespace sluice::tools {
namespace {

RunConfig read_config(const TrainCommand& command, const CommonOptions& common) {
  nlohmann::json document = nlohmann::json::object();
  const std::string saved = command.output + "/config.json";
  if (!command.config.empty()) {
    document = read_json(command.config);
  } else if (command.resume && std::filesystem::exists(saved)) {
    document = read_json(saved);
  }
  if (!command.text.empty()) apply_override(document, "data.text=" + command.text);
  if (common.seed) apply_override(document, fmt::format("train.seed={}", *common.seed));
  for (const std::string& assignment : command.overrides) apply_override(document, assignment);
  RunConfig config = run_config_from_json(document);
  SLUICE_CHECK(
      !config.data.text.empty(),
      ArgumentError,
      "train: no text: give --text FILE or data.text in the configuration");
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
