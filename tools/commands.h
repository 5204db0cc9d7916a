// What each command of the program `sluice` does, apart from reading its command line. A command
// prints its result on standard output (as JSON where asked) and throws sluice::Error on failure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/device.h"

namespace sluice::tools {

/// Options that every command takes.
struct CommonOptions {
  bool json = false;
  int threads = 0;  ///< 0: as many as the process may use
  std::optional<uint64_t> seed;
  Device device;
};

/// `sluice corpus`: writes one of the built-in texts.
struct CorpusCommand {
  std::string source;  ///< "packages" or "wordnet"
  std::string output;
  std::string input;  ///< packages: a saved dump, else apt-cache is run; wordnet: the folder
  int64_t bytes = 12'000'000;
};
void run_corpus(const CorpusCommand& command, const CommonOptions& common);

/// `sluice train`: one run in a folder. Ctrl-C and SIGTERM save a checkpoint and end it normally.
struct TrainCommand {
  std::string config;  ///< JSON file; "" for the defaults, or the folder's on resume
  std::vector<std::string> overrides;  ///< key=value
  std::string text;                    ///< overrides data.text
  std::string output;                  ///< folder of the run
  bool resume = false;
  std::string start_from;  ///< checkpoint whose parameters the run begins with
};
void run_train(const TrainCommand& command, const CommonOptions& common);

/// `sluice eval`: losses, shares and times of a checkpoint on held-out text, mode by mode.
struct EvalCommand {
  std::string checkpoint;          ///< or the folder of a run
  std::string text;                ///< default: the text that the run was trained on
  double held_out = 0;             ///< last part of the text that is read; 0: as in training
  std::vector<std::string> modes;  ///< default: all that mean something for the model
  int64_t windows = 0;             ///< 0: all
};
void run_eval(const EvalCommand& command, const CommonOptions& common);

/// `sluice generate`: continues a prompt.
struct GenerateCommand {
  std::string checkpoint;
  std::string prompt;
  int64_t bytes = 300;
  double temperature = 0.8;
  int64_t top_k = 0;
};
void run_generate(const GenerateCommand& command, const CommonOptions& common);

/// `sluice inspect`: tensors, configuration and size of a checkpoint, or of a safetensors file.
struct InspectCommand {
  std::string path;
};
void run_inspect(const InspectCommand& command, const CommonOptions& common);

/// `sluice demo`: trains the runs of a plan that are not finished, evaluates its rows, and writes a
/// report.
struct DemoCommand {
  std::string plan;     ///< JSON file, see demo_plan.h
  std::string text;     ///< the text of every run
  std::string output;   ///< folder of runs and report
  std::string results;  ///< a second folder for the report and its numbers; "" for none
};
void run_demo(const DemoCommand& command, const CommonOptions& common);

}  // namespace sluice::tools
