// A model from a checkpoint, with the configuration that it was trained with.
#pragma once

#include <memory>
#include <string>

#include "models/meta_attention.h"
#include "models/run_config.h"

namespace sluice::tools {

struct LoadedModel {
  std::string checkpoint;  ///< path
  int64_t step = 0;
  RunConfig config;
  std::unique_ptr<MetaAttentionLM> model;
};

/// `path` is a checkpoint or the folder of a run, whose newest checkpoint is taken.
/// Throws IoError, ArgumentError.
LoadedModel load_model(const std::string& path);

}  // namespace sluice::tools
