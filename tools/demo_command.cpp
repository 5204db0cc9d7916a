// `sluice demo`: trains what the plan lacks, then one table.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include <fmt/core.h>

#include "engine/errors.h"
#include "engine/file.h"
#include "models/checkpoint.h"
#include "models/median.h"
#include "models/progress.h"
#include "models/text_data.h"
#include "models/training_run.h"
#include "tools/commands.h"
#include "tools/demo_plan.h"
#include "tools/demo_report.h"
#include "tools/interrupt.h"
#include "tools/load_model.h"
#include "tools/machine.h"
#include "tools/record_marks.h"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;

class Demo {
 public:
  explicit Demo(const DemoCommand& command) : command_(command), plan_(read_plan(command.plan)) {}

  /// False when it was interrupted.
  bool train();
  DemoResult evaluate();

 private:
  std::string folder(const std::string& run, uint64_t seed) const {
    return fmt::format("{}/{}-{}", command_.output, run, seed);
  }
  RunConfig config_of(const PlannedRun& run, uint64_t seed) const;
  const LoadedModel& model(const std::string& run, uint64_t seed);
  EvaluateOptions options_for(const PlannedRow& row, uint64_t seed);
  void time_rows(std::vector<DemoRow>& rows, size_t seed, const TextData& text);
  std::vector<std::string> facts(const TextData& text, int64_t windows);

  const DemoCommand& command_;
  DemoPlan plan_;
  std::map<std::string, LoadedModel> models_;  // by folder
  AttentionCostModel costs_;
};

RunConfig Demo::config_of(const PlannedRun& run, uint64_t seed) const {
  RunConfig config = run_config_from_json(run.config);
  config.data.text = command_.text;
  config.train.seed = seed;
  return config;
}

bool Demo::train() {
  size_t number = 0;
  const size_t total = plan_.runs.size() * plan_.seeds.size();
  for (const uint64_t seed : plan_.seeds) {
    for (const PlannedRun& run : plan_.runs) {
      ++number;
      const RunConfig config = config_of(run, seed);
      const std::string where = folder(run.name, seed);
      const auto checkpoints = list_checkpoints(where);
      if (!checkpoints.empty() && checkpoints.back().step == config.train.steps) {
        fmt::print(stderr, "[{}/{}] {} seed {}: finished before\n", number, total, run.name, seed);
      }
      const RunResult result = run_training(
          config,
          {.folder = where,
           .resume = true,
           .start_from = run.start_from.empty() ? "" : folder(run.start_from, seed),
           .name = fmt::format("[{}/{}] {} seed {}", number, total, run.name, seed),
           .stop = &InterruptScope::requested});
      if (!result.finished) return false;
    }
  }
  return true;
}

const LoadedModel& Demo::model(const std::string& run, uint64_t seed) {
  const std::string where = folder(run, seed);
  auto found = models_.find(where);
  if (found == models_.end()) found = models_.emplace(where, load_model(where)).first;
  return found->second;
}

EvaluateOptions Demo::options_for(const PlannedRow& row, uint64_t seed) {
  const auto& [model_config, data, train] = model(row.run, seed).config;
  return {
      .mode = row.mode,
      .sharpness = row.mode == RouteMode::soft ? soft_sharpness(model_config) : 1.0,
      .batch = train.batch,
      .tokens = train.tokens,
      .first_window = plan_.first_window,
      .windows = plan_.evaluate_windows,
      .seed = seed,
      .value_fields = data.value_fields,
      .given_fields = data.given_fields,
      .costs = &costs_};
}

// The rows take turns on the same batch, so what else the machine does meets all of them alike.
void Demo::time_rows(std::vector<DemoRow>& rows, size_t seed, const TextData& text) {
  std::vector<std::vector<double>> attention(rows.size()), controller(rows.size());
  for (int64_t turn = 0; turn < plan_.timing_batches; ++turn) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const PlannedRow& row = rows[i].plan;
      EvaluateOptions options = options_for(row, plan_.seeds[seed]);
      const int64_t batches = std::max<int64_t>(1, rows[i].seeds[seed].windows / options.batch);
      options.windows = options.batch;
      options.first_window = plan_.first_window + turn % batches * options.batch;
      options.costs = nullptr;
      const Evaluation timed =
          sluice::evaluate(*model(row.run, plan_.seeds[seed]).model, text.held_out(), options);
      attention[i].push_back(timed.attention_ms);
      controller[i].push_back(timed.controller_ms);
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].seeds[seed].attention_ms = median(attention[i]);
    rows[i].seeds[seed].controller_ms = median(controller[i]);
  }
}

std::vector<std::string> Demo::facts(const TextData& text, int64_t windows) {
  const LoadedModel& first = model(plan_.rows.front().run, plan_.seeds.front());
  const TrainConfig& train = first.config.train;
  std::string seeds;
  for (const uint64_t seed : plan_.seeds) seeds += fmt::format(" {}", seed);
  return {
      "machine: " + describe_machine(),
      fmt::format(
          "text: {}, {} bytes, the last {} held out",
          text.path,
          text.bytes.size(),
          text.held_out().size()),
      describe_windows(plan_, windows),
      fmt::format(
          "model: {} parameters, {} layers, C = {}, H = {}, W = {}",
          parameter_count(*first.model),
          first.config.model.layers,
          first.config.model.width,
          first.config.model.heads,
          first.config.model.window),
      fmt::format(
          "training: {} steps of {} x {} bytes, seeds{}",
          train.steps,
          train.samples_per_step(),
          train.tokens,
          seeds),
      fmt::format("plan: {}", command_.plan)};
}

DemoResult Demo::evaluate() {
  const RunConfig config = config_of(plan_.runs.front(), plan_.seeds.front());
  const TrainConfig& train = config.train;
  const TextData text = read_text(command_.text, config.data.held_out);
  fmt::print(stderr, "measuring the cost of attention on this machine\n");
  costs_ = measure_costs(config.model, train.batch, train.tokens);

  DemoResult result;
  result.title = plan_.title;
  for (const PlannedRow& row : plan_.rows) result.rows.push_back({row, {}});
  const auto total = static_cast<int64_t>(plan_.rows.size() * plan_.seeds.size());
  Progress progress({.name = "evaluating", .total = total, .terminal = is_terminal(stderr)});
  int64_t done = 0;
  for (size_t seed = 0; seed < plan_.seeds.size(); ++seed) {
    for (DemoRow& row : result.rows) {
      const LoadedModel& loaded = model(row.plan.run, plan_.seeds[seed]);
      row.seeds.push_back(sluice::evaluate(
          *loaded.model, text.held_out(), options_for(row.plan, plan_.seeds[seed])));
      progress.update(++done, row.plan.title);
    }
    time_rows(result.rows, seed, text);
  }
  progress.finish();
  result.facts = facts(text, result.rows.front().seeds.front().windows);
  for (const DemoRow& row : result.rows) {
    if (row.plan.role != RowRole::routed) continue;
    result.record = mark_passage(
        *model(row.plan.run, plan_.seeds.front()).model,
        text.held_out(),
        train.tokens,
        find_passage(text.held_out(), train.tokens));
  }
  return result;
}

void write_file(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace

void run_demo(const DemoCommand& command, const CommonOptions& common) {
  Demo demo(command);
  bool trained = false;
  {
    // Evaluation has nothing to save: there Ctrl-C ends the program at once.
    const InterruptScope interrupts;
    trained = demo.train();
  }
  if (!trained) {
    fmt::print("stopped; the same command continues where it was\n");
    return;
  }
  const DemoResult result = demo.evaluate();
  const std::string report = to_markdown(result);
  for (const std::string& folder : {command.output, command.results}) {
    if (folder.empty()) continue;
    fs::create_directories(folder);
    write_file(folder + "/report.md", report);
    write_file(folder + "/results.json", to_json(result).dump(2) + "\n");
  }
  if (common.json) {
    fmt::print("{}\n", to_json(result).dump(2));
  } else {
    fmt::print("{}\nreport: {}/report.md\n", report, command.output);
  }
}

}  // namespace sluice::tools
