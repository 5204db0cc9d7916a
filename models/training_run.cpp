// See training_run.h.
#include "models/training_run.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include <fmt/core.h>

#include "engine/errors.h"
#include "engine/file.h"
#include "models/checkpoint.h"
#include "models/evaluate.h"
#include "models/metrics.h"
#include "models/progress.h"
#include "models/trainer.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

class Run {
 public:
  Run(const RunConfig& config, const RunOptions& options)
      : options_(options), trainer_(config, read_text(config.data.text, config.data.held_out)) {}

  RunResult train();

 private:
  void begin();
  void record(const StepReport& report);
  void evaluate_held_out(nlohmann::json& line) const;
  void save();
  std::string describe() const;
  std::string path(const char* name) const { return options_.folder + "/" + name; }
  const TrainConfig& plan() const { return trainer_.config().train; }

  const RunOptions& options_;
  Trainer trainer_;
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<MetricsLog> timings_;
  std::chrono::steady_clock::time_point stretch_begin_;
  int64_t stretch_step_ = 0;
  double smoothed_loss_ = std::numeric_limits<double>::quiet_NaN();
  std::array<double, kExperts> shares_{};  // mean over routed layers, last known
  bool routed_ = false;
};

void write_json(const std::string& path, const nlohmann::json& json) {
  AtomicFile file(path);
  file.write(json.dump(2) + "\n");
  file.commit();
}

void Run::begin() {
  const auto checkpoints = list_checkpoints(options_.folder);
  SLUICE_CHECK(
      checkpoints.empty() || options_.resume,
      ArgumentError,
      "{}: holds a run that reached step {}; continue it with --resume or choose another folder",
      options_.folder,
      checkpoints.back().step);
  if (!checkpoints.empty()) {
    trainer_.restore(checkpoints.back().path);
  } else {
    if (!options_.start_from.empty()) {
      trainer_.start_from(resolve_checkpoint(options_.start_from));
    }
    std::error_code reason;
    fs::create_directories(options_.folder, reason);
    SLUICE_CHECK(
        !reason, IoError, "{}: cannot make the folder: {}", options_.folder, reason.message());
  }
  metrics_ = std::make_unique<MetricsLog>(path("metrics.jsonl"), trainer_.steps_done());
  timings_ = std::make_unique<MetricsLog>(path("timings.jsonl"), trainer_.steps_done());
  stretch_begin_ = std::chrono::steady_clock::now();
  stretch_step_ = trainer_.steps_done();
  if (!checkpoints.empty()) return;
  // A run that is killed before its first checkpoint is begun again by --resume, which is not told
  // where the parameters came from: this checkpoint, there before the configuration, knows them.
  if (!options_.start_from.empty()) save();
  write_json(path("config.json"), to_json(trainer_.config()));
}

void Run::evaluate_held_out(nlohmann::json& line) const {
  const RunConfig& config = trainer_.config();
  const Evaluation held_out = evaluate(
      trainer_.model(),
      trainer_.text().held_out(),
      {.mode = RouteMode::hard,
       .batch = config.train.batch,
       .tokens = config.train.tokens,
       .windows = config.train.evaluate_windows,
       .value_fields = config.data.value_fields,
       .given_fields = config.data.given_fields});
  line["held_out_loss"] = held_out.loss;
  line["held_out_value_loss"] = held_out.value_loss;
}

void Run::record(const StepReport& report) {
  // A decay of 0.98 averages over about fifty steps.
  smoothed_loss_ =
      std::isnan(smoothed_loss_) ? report.loss : 0.98 * smoothed_loss_ + 0.02 * report.loss;
  if (!report.layers.empty()) {
    routed_ = true;
    shares_ = {};
    for (const RouteStats& stats : report.layers) {
      // Shares are known where tokens ran on one expert each; else every expert ran, weighted.
      const bool hard = stats.share[0] + stats.share[1] + stats.share[2] > 0;
      const auto& used = hard ? stats.share : stats.mean_weight;
      for (size_t e = 0; e < kExperts; ++e) {
        shares_[e] += used[e] / static_cast<double>(report.layers.size());
      }
    }
  }
  nlohmann::json line = to_json(report);
  if (plan().evaluate_every > 0 && report.step % plan().evaluate_every == 0) {
    evaluate_held_out(line);
  }
  metrics_->append(line);
}

void Run::save() {
  const auto now = std::chrono::steady_clock::now();
  if (trainer_.steps_done() > stretch_step_) {
    timings_->append(
        {{"step", trainer_.steps_done()},
         {"steps", trainer_.steps_done() - stretch_step_},
         {"seconds", std::chrono::duration<double>(now - stretch_begin_).count()}});
  }
  stretch_step_ = trainer_.steps_done();
  // The lines of the steps that a checkpoint holds must not be lost once it exists.
  metrics_->sync();
  timings_->sync();
  save_checkpoint(options_.folder, trainer_.checkpoint());
  prune_checkpoints(options_.folder, plan().checkpoints_kept);
  stretch_begin_ = std::chrono::steady_clock::now();
}

std::string Run::describe() const {
  std::string text = fmt::format("loss {:.3f}", smoothed_loss_);
  if (routed_) {
    text += fmt::format(
        "  full {:.0f} linear {:.0f} window {:.0f} %",
        100 * shares_[0],
        100 * shares_[1],
        100 * shares_[2]);
  }
  return text;
}

RunResult Run::train() {
  begin();
  std::unique_ptr<Progress> progress;
  if (!options_.quiet) {
    progress = std::make_unique<Progress>(Progress::Options{
        .name = options_.name,
        .total = plan().steps,
        .done = trainer_.steps_done(),
        .units_per_step = plan().samples_per_step() * plan().tokens,
        .terminal = is_terminal(stderr)});
  }
  bool stopped = false;
  bool saved = true;  // what the folder holds is the current step, or step 0
  while (!trainer_.finished() && !stopped) {
    const StepReport report = trainer_.step();
    record(report);
    if (progress) progress->update(report.step, describe());
    saved = plan().checkpoint_every > 0 && report.step % plan().checkpoint_every == 0;
    if (saved) save();
    stopped = options_.stop && options_.stop();
  }
  if (!saved) save();
  if (progress) progress->finish();
  RunResult result;
  result.finished = trainer_.finished();
  result.step = trainer_.steps_done();
  result.checkpoint = resolve_checkpoint(options_.folder);
  result.loss = smoothed_loss_;
  return result;
}

}  // namespace

RunResult run_training(const RunConfig& config, const RunOptions& options) {
  return Run(config, options).train();
}

}  // namespace sluice
