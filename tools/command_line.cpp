// The only file that includes CLI11, whose header takes longer to compile than everything else
// here: options go into the plain structs of commands.h.
#include "tools/command_line.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include <fmt/core.h>

#include "engine/context.h"
#include "engine/errors.h"
#include "tools/commands.h"

namespace sluice::tools {
namespace {

/// CLI11 reads "-3" as an unsigned number near 2^64.
std::string not_negative(const std::string& text) {
  return text.starts_with('-') ? "must be >= 0, got " + text : "";
}

void add_common(CLI::App& app, CommonOptions& common) {
  app.add_flag("--json", common.json, "Print the result as JSON");
  app.add_option("--threads", common.threads, "Threads to compute on (default: all)")
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", common.seed, "Seed of everything random")->check(not_negative, ">= 0");
  app.add_option_function<std::string>(
         "--device",
         [&common](const std::string& text) { common.device = parse_device(text); },
         "Where tensors live: cpu")
      ->default_str("cpu");
}

using Run = std::function<void(const CommonOptions&)>;

/// Makes `run` call `function` with the options of the command on the line.
template <class Command>
void on_chosen(
    CLI::App* app,
    std::shared_ptr<Command> command,
    void (*function)(const Command&, const CommonOptions&),
    Run& run) {
  app->callback([command, function, &run] {
    run = [command, function](const CommonOptions& common) { function(*command, common); };
  });
}

void add_corpus(CLI::App& app, Run& run) {
  auto command = std::make_shared<CorpusCommand>();
  CLI::App* corpus = app.add_subcommand("corpus", "Write a text to train on");
  corpus->add_option("source", command->source, "packages or wordnet")
      ->required()
      ->check(CLI::IsMember({"packages", "wordnet"}));
  corpus->add_option("--out", command->output, "File to write")->required();
  corpus->add_option(
      "--input", command->input, "A saved apt-cache dumpavail, or the folder of WordNet's data");
  corpus->add_option("--bytes", command->bytes, "Length at most")->check(CLI::PositiveNumber);
  on_chosen(corpus, command, &run_corpus, run);
}

void add_train(CLI::App& app, Run& run) {
  auto command = std::make_shared<TrainCommand>();
  CLI::App* train = app.add_subcommand("train", "Train a model; Ctrl-C saves and ends");
  train->add_option("--config", command->config, "JSON file with model, data and train");
  train->add_option("--set", command->overrides, "key=value, for example train.steps=100")
      ->take_all()
      ->allow_extra_args(false);
  train->add_option("--text", command->text, "File whose bytes are the tokens");
  train->add_option("--out", command->output, "Folder of the run")->required();
  auto* resume = train->add_flag("--resume", command->resume, "Go on from the newest checkpoint");
  train->add_option("--start-from", command->start_from, "Checkpoint to take parameters from")
      ->excludes(resume);
  on_chosen(train, command, &run_train, run);
}

void add_eval(CLI::App& app, Run& run) {
  auto command = std::make_shared<EvalCommand>();
  CLI::App* eval = app.add_subcommand("eval", "Losses, shares and times on held-out text");
  eval->add_option("checkpoint", command->checkpoint, "Checkpoint or folder of a run")->required();
  eval->add_option("--text", command->text, "Another text than the run's");
  eval->add_option("--held-out", command->held_out, "Last part of the text to read")
      ->check(CLI::Range(0.0, 1.0));
  eval->add_option("--mode", command->modes, "soft, hard, random, prior, uniform, full, ...")
      ->take_all()
      ->allow_extra_args(false);
  eval->add_option("--windows", command->windows, "Windows to read (default: all)")
      ->check(CLI::PositiveNumber);
  on_chosen(eval, command, &run_eval, run);
}

void add_generate(CLI::App& app, Run& run) {
  auto command = std::make_shared<GenerateCommand>();
  CLI::App* generate = app.add_subcommand("generate", "Continue a prompt");
  generate->add_option("checkpoint", command->checkpoint, "Checkpoint or folder of a run")
      ->required();
  generate->add_option("--prompt", command->prompt, "Text to continue");
  generate->add_option("--bytes", command->bytes, "Bytes to write")->check(CLI::PositiveNumber);
  generate->add_option("--temperature", command->temperature, "0 takes the likeliest byte")
      ->check(CLI::NonNegativeNumber);
  generate->add_option("--top-k", command->top_k, "Draw from the k likeliest bytes")
      ->check(CLI::PositiveNumber);
  on_chosen(generate, command, &run_generate, run);
}

void add_inspect(CLI::App& app, Run& run) {
  auto command = std::make_shared<InspectCommand>();
  CLI::App* inspect = app.add_subcommand("inspect", "Tensors, configuration, parameter count");
  inspect->add_option("path", command->path, "Checkpoint, folder of a run, or safetensors file")
      ->required();
  on_chosen(inspect, command, &run_inspect, run);
}

void add_demo(CLI::App& app, Run& run) {
  auto command = std::make_shared<DemoCommand>();
  CLI::App* demo = app.add_subcommand("demo", "Train the runs of a plan and report on them");
  demo->add_option("--plan", command->plan, "JSON file with runs and rows")->required();
  demo->add_option("--text", command->text, "Text of every run")->required();
  demo->add_option("--out", command->output, "Folder of runs and report")->required();
  demo->add_option("--results", command->results, "Second folder for the report");
  on_chosen(demo, command, &run_demo, run);
}

}  // namespace

int run_command_line(int argc, const char* const* argv) {
  CLI::App app("Trains and runs language models whose tokens choose their attention.", "sluice");
  app.set_version_flag("--version", "sluice " SLUICE_VERSION);
  app.require_subcommand(1);
  app.fallthrough();  // common options may follow the command
  CommonOptions common;
  Run run;
  add_common(app, common);
  add_train(app, run);
  add_eval(app, run);
  add_generate(app, run);
  add_inspect(app, run);
  add_corpus(app, run);
  add_demo(app, run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    fmt::print(stderr, "sluice: {} (see sluice --help)\n", error.what());
    return 2;
  } catch (const Error& error) {
    fmt::print(stderr, "sluice: {}\n", error.what());
    return 2;
  }
  try {
    SLUICE_CHECK(
        common.device.type == DeviceType::cpu,
        DeviceError,
        "--device {}: this build computes on cpu only",
        to_string(common.device));
    if (common.threads > 0) set_num_threads(common.threads);
    run(common);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "sluice: {}\n", error.what());
    return 1;
  }
}

}  // namespace sluice::tools
