// `sluice inspect`.
#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/core.h>

#include "engine/safetensors.h"
#include "models/checkpoint.h"
#include "tools/commands.h"
#include "tools/load_model.h"

namespace sluice::tools {
namespace {

nlohmann::json list_tensors(const SafetensorsFile& file) {
  nlohmann::json tensors = nlohmann::json::array();
  for (const auto& [name, tensor] : file.tensors) {
    tensors.push_back(
        {{"name", name}, {"dtype", name_of(tensor.dtype())}, {"shape", tensor.shape().dims()}});
  }
  return tensors;
}

int64_t count_values(const SafetensorsFile& file) {
  int64_t count = 0;
  for (const auto& [name, tensor] : file.tensors) count += tensor.numel();
  return count;
}

}  // namespace

void run_inspect(const InspectCommand& command, const CommonOptions& common) {
  const bool single_file = std::filesystem::is_regular_file(command.path);
  const std::string checkpoint = single_file ? "" : resolve_checkpoint(command.path);
  const std::string path = single_file ? command.path : checkpoint + "/model.safetensors";
  const SafetensorsFile file = load_safetensors(path);
  nlohmann::json result = {
      {"file", path}, {"values", count_values(file)}, {"tensors", list_tensors(file)}};
  if (!file.metadata.empty()) result["metadata"] = file.metadata;
  if (!single_file) {
    const LoadedModel loaded = load_model(checkpoint);
    result["step"] = loaded.step;
    result["parameters"] = parameter_count(*loaded.model);
    result["config"] = to_json(loaded.config);
  }
  if (common.json) {
    fmt::print("{}\n", result.dump(2));
    return;
  }
  fmt::print("{}\n", path);
  for (const auto& [name, tensor] : file.tensors) {
    fmt::print("  {:<44} {:<4} {}\n", name, name_of(tensor.dtype()), to_string(tensor.shape()));
  }
  fmt::print("{} values in {} tensors\n", count_values(file), file.tensors.size());
  for (const auto& [key, value] : file.metadata) fmt::print("{}: {}\n", key, value);
  if (!single_file) {
    fmt::print(
        "{} parameters, step {}\n{}\n",
        result["parameters"].dump(),
        result["step"].dump(),
        result["config"].dump(2));
  }
}

}  // namespace sluice::tools
