// See checkpoint.h.
#include "models/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "engine/errors.h"
#include "engine/file.h"
#include "engine/safetensors.h"
#include "models/run_config.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 1;
constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kTemporaryPrefix = ".checkpoint-";

/// Eight digits keep the alphabetic order of a listing that of the steps.
std::string folder_name(int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

bool present(const fs::path& path) {
  std::error_code reason;
  const bool found = fs::exists(path, reason);
  SLUICE_CHECK(!reason, IoError, "{}: cannot look for it: {}", path.string(), reason.message());
  return found;
}

/// Removes a folder at the end of the scope unless it was kept.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(fs::path path) : path_(std::move(path)) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);  // what an earlier process with this number left
    std::error_code reason;
    fs::create_directories(path_, reason);
    SLUICE_CHECK(
        !reason, IoError, "{}: cannot make the folder: {}", path_.string(), reason.message());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const fs::path& path() const { return path_; }
  void rename_to(const fs::path& target) {
    std::error_code reason;
    fs::rename(path_, target, reason);
    SLUICE_CHECK(
        !reason, IoError, "{}: cannot rename to it: {}", target.string(), reason.message());
    path_.clear();
  }

 private:
  fs::path path_;
};

std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = -1;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || stop != end || step < 0) return std::nullopt;
  return step;
}

std::string describe_difference(const NamedTensor& target, const Tensor& found) {
  return fmt::format(
      "{} is {} {}, the file has {} {}",
      target.name,
      name_of(target.tensor.dtype()),
      to_string(target.tensor.shape()),
      name_of(found.dtype()),
      to_string(found.shape()));
}

}  // namespace

std::string save_checkpoint(const std::string& folder, const Checkpoint& checkpoint) {
  const fs::path target = fs::path(folder) / folder_name(checkpoint.step);
  if (present(target / "state.json")) return target.string();
  std::error_code reason;
  fs::remove_all(target, reason);  // what is left of one that somebody deleted in part
  SLUICE_CHECK(
      !reason,
      IoError,
      "{}: cannot remove the incomplete checkpoint: {}",
      target.string(),
      reason.message());
  TemporaryFolder temporary(
      fs::path(folder) / fmt::format(".{}.{}", folder_name(checkpoint.step), ::getpid()));
  save_safetensors((temporary.path() / "model.safetensors").string(), checkpoint.model);
  save_safetensors((temporary.path() / "optimiser.safetensors").string(), checkpoint.optimiser);
  nlohmann::json state = checkpoint.state;
  state["format"] = kFormat;
  state["step"] = checkpoint.step;
  AtomicFile file((temporary.path() / "state.json").string());
  file.write(state.dump(2) + "\n");
  file.commit();
  temporary.rename_to(target);
  sync_folder(folder);
  return target.string();
}

std::vector<CheckpointEntry> list_checkpoints(const std::string& folder) {
  std::vector<CheckpointEntry> found;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing)) {
    const auto step = step_of(entry.path().filename().string());
    if (step && present(entry.path() / "state.json")) {
      found.push_back({*step, entry.path().string()});
    }
  }
  std::sort(
      found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return found;
}

void prune_checkpoints(const std::string& folder, int64_t kept) {
  std::error_code ignored;
  std::vector<fs::path> stale;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().filename().string().starts_with(kTemporaryPrefix)) {
      stale.push_back(entry.path());
    }
  }
  auto checkpoints = list_checkpoints(folder);
  const auto surplus = static_cast<int64_t>(checkpoints.size()) - kept;
  for (const fs::path& path : stale) fs::remove_all(path, ignored);
  for (int64_t i = 0; i < surplus; ++i) {
    // A kill in the middle would leave a folder that has its state.json but lacks other files:
    // under the hidden name it is no checkpoint, and the next call removes it.
    const fs::path path = checkpoints[size_t(i)].path;
    const fs::path hidden = path.parent_path() / fmt::format(".{}", path.filename().string());
    fs::rename(path, hidden, ignored);
    if (!ignored) fs::remove_all(hidden, ignored);
  }
}

std::string resolve_checkpoint(const std::string& path) {
  if (present(fs::path(path) / "state.json")) return path;
  const auto checkpoints = list_checkpoints(path);
  SLUICE_CHECK(
      !checkpoints.empty(),
      IoError,
      "{}: {}",
      path,
      present(path) ? "is neither a checkpoint (no state.json) nor the folder of a run (no "
                      "checkpoint-STEP in it)"
                    : "No such file or directory");
  return checkpoints.back().path;
}

nlohmann::json read_state(const std::string& checkpoint) {
  nlohmann::json state = read_json((fs::path(checkpoint) / "state.json").string());
  const auto field = [&](const char* name) {
    return state.is_object() ? state.value(name, nlohmann::json()) : nlohmann::json();
  };
  const nlohmann::json format = field("format");
  SLUICE_CHECK(
      format == kFormat,
      ArgumentError,
      "{}: format must be {}, got {}; this program is of another version",
      checkpoint,
      kFormat,
      format.dump());
  const nlohmann::json step = field("step");
  SLUICE_CHECK(
      step.is_number_unsigned() && step.get<uint64_t>() <= uint64_t(INT64_MAX),
      ArgumentError,
      "{}: step must be an integer >= 0, got {}",
      checkpoint,
      step.dump());
  return state;
}

void load_tensors(
    const std::string& path, std::span<const NamedTensor> targets, const MayDiffer& may_differ) {
  const SafetensorsFile file = load_safetensors(path);
  const auto excused = [&](const std::string& name) { return may_differ && may_differ(name); };
  std::vector<std::string> faults;
  std::set<std::string> expected;
  for (const NamedTensor& target : targets) {
    expected.insert(target.name);
    const auto found = file.tensors.find(target.name);
    if (found == file.tensors.end()) {
      if (!excused(target.name)) faults.push_back(target.name + " is missing in the file");
      continue;
    }
    const Tensor& tensor = found->second;
    if (!(tensor.shape() == target.tensor.shape()) || tensor.dtype() != target.tensor.dtype()) {
      faults.push_back(describe_difference(target, tensor));
    }
  }
  for (const auto& [name, tensor] : file.tensors) {
    if (!expected.contains(name) && !excused(name)) faults.push_back(name + " is in the file only");
  }
  SLUICE_CHECK(
      faults.empty(),
      ArgumentError,
      "{}: does not fit this model: {}",
      path,
      fmt::join(faults, "; "));
  for (const NamedTensor& target : targets) {
    const auto found = file.tensors.find(target.name);
    if (found != file.tensors.end()) copy_into(target.tensor, found->second);
  }
}

}  // namespace sluice
