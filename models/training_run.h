// A training run in a folder: metrics, checkpoints, progress, stopping and going on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "models/run_config.h"

namespace sluice {

/// What the folder of a run holds:
///   config.json        the configuration
///   metrics.jsonl      one line a step, a function of configuration and text only
///   timings.jsonl      seconds that stretches of steps took
///   checkpoint-STEP/   see checkpoint.h
struct RunOptions {
  std::string folder;
  bool resume = false;         ///< go on from the newest checkpoint, if there is one
  std::string start_from;      ///< checkpoint whose parameters a new run begins with; "" for none
  std::string name = "train";  ///< shown in the progress line
  bool quiet = false;          ///< no progress line
  std::function<bool()> stop;  ///< asked after each step; true saves and ends the run
};

struct RunResult {
  bool finished = false;  ///< false: stopped early
  int64_t step = 0;
  std::string checkpoint;  ///< the newest one
  double loss = 0;         ///< smoothed training loss over the last steps; NaN when none was done
};

/// Trains until train.steps or a stop, and leaves a checkpoint of the last step. A run whose last
/// step has a checkpoint is finished already and nothing is done.
/// Throws ArgumentError (the folder holds a run and resume is off, a configuration or text that the
/// checkpoint was not made with, start_from of another architecture), IoError, Error (loss not
/// finite).
RunResult run_training(const RunConfig& config, const RunOptions& options);

}  // namespace sluice
