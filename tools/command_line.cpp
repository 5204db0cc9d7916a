// The only file that includes CLI11, whose header takes longer to compile than everything else
// here: options go into the plain structs of commands.h.
#include "tools/command_line.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include <fmt/core.h>

#include "engine/context.h"
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
  corpus->callback([command, &run] {
    run = [command](const CommonOptions& common) { run_corpus(*command, common); };
  });
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
  add_corpus(app, run);
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
    if (common.threads > 0) set_num_threads(common.threads);
    run(common);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "sluice: {}\n", error.what());
    return 1;
  }
}

}  // namespace sluice::tools
