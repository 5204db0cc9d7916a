// Checkpoints on disk: folders named checkpoint-STEP that appear complete or not at all.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/module.h"

namespace sluice {

/// What a checkpoint folder holds:
///   model.safetensors      parameters and buffers
///   optimiser.safetensors  moments of the optimiser
///   state.json             step, samples seen, configuration, format version
struct Checkpoint {
  int64_t step = 0;
  std::vector<NamedTensor> model;
  std::vector<NamedTensor> optimiser;
  nlohmann::json state;  ///< the caller's own; "step" and "format" are added
};

/// Writes `checkpoint` as FOLDER/checkpoint-STEP: into a hidden temporary folder first, made
/// durable, then renamed. A process that is killed on the way leaves the older checkpoints as they
/// were; so does a full disk, after which the temporary folder is removed. When the step has a
/// checkpoint already nothing is written; a folder of that name without state.json is no checkpoint
/// and is replaced. Returns its path. Throws IoError.
std::string save_checkpoint(const std::string& folder, const Checkpoint& checkpoint);

/// Path and step of every complete checkpoint in `folder`, rising. Empty when the folder is
/// missing. Throws IoError (a checkpoint whose files cannot be looked at).
struct CheckpointEntry {
  int64_t step;
  std::string path;
};
std::vector<CheckpointEntry> list_checkpoints(const std::string& folder);

/// Deletes all but the newest `kept` checkpoints, and temporary folders that a kill left behind.
/// A process that is killed on the way leaves whole checkpoints and temporary folders. Throws as
/// list_checkpoints.
void prune_checkpoints(const std::string& folder, int64_t kept);

/// `path` itself when it is a checkpoint, its newest checkpoint when it is the folder of a run.
/// Throws IoError saying which of the two was looked for.
std::string resolve_checkpoint(const std::string& path);

/// The state.json of a checkpoint. Throws IoError, ArgumentError (not JSON, a format of the future,
/// no step).
nlohmann::json read_state(const std::string& checkpoint);

/// Whether a file may lack a tensor, or hold one more.
using MayDiffer = std::function<bool(const std::string& name)>;

/// Copies the tensors of a safetensors file into `targets` by name. Those for which `may_differ`
/// holds are left as they are when the file lacks them, and passed over when only the file has
/// them. Throws ArgumentError listing every name that is missing, unexpected, or of another shape
/// or dtype: then nothing was copied.
void load_tensors(
    const std::string& file,
    std::span<const NamedTensor> targets,
    const MayDiffer& may_differ = {});

}  // namespace sluice
