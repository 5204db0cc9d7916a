// `sluice generate`.
#include <nlohmann/json.hpp>

#include <fmt/core.h>

#include "models/generate.h"
#include "tools/commands.h"
#include "tools/interrupt.h"
#include "tools/load_model.h"

namespace sluice::tools {

void run_generate(const GenerateCommand& command, const CommonOptions& common) {
  const LoadedModel loaded = load_model(command.checkpoint);
  const InterruptScope interrupts;
  GenerateOptions options{
      .bytes = command.bytes,
      .temperature = command.temperature,
      .top_k = command.top_k,
      .seed = common.seed.value_or(1)};
  if (!common.json) fmt::print("{}", command.prompt);
  options.on_byte = [&](char byte) {
    if (!common.json) {
      std::fputc(byte, stdout);
      std::fflush(stdout);
    }
    return !InterruptScope::requested();
  };
  const std::string text = generate(*loaded.model, command.prompt, options);
  const bool cut =
      static_cast<int64_t>(text.size()) < command.bytes && !InterruptScope::requested();
  if (!common.json) {
    fmt::print("\n");
    std::fflush(stdout);
    if (cut) {
      fmt::print(
          stderr,
          "stopped after {} of {} bytes, at the end of the model's context of {}\n",
          text.size(),
          command.bytes,
          loaded.config.model.context);
    }
    return;
  }
  const nlohmann::json result = {
      {"checkpoint", loaded.checkpoint},
      {"prompt", command.prompt},
      {"text", text},
      {"stopped_at_context", cut}};
  // A model of bytes may write what is no UTF-8.
  fmt::print("{}\n", result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace sluice::tools
