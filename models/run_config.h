// Everything that a training run is told, as one JSON document with the parts model, data, train.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/meta_attention_config.h"
#include "models/schedule.h"

namespace sluice {

struct DataConfig {
  std::string text;        ///< path of the file whose bytes are the tokens
  double held_out = 0.05;  ///< the last part of the text, never trained on
  /// Line prefixes: the loss on the values of such lines is reported apart.
  std::vector<std::string> value_fields = {"Filename: "};
  /// Line prefixes: the tokens that predict such values take full attention in layers of kind
  /// `given`.
  std::vector<std::string> given_fields = {"Filename: "};
};

struct TrainConfig {
  int64_t steps = 3000;
  int64_t batch = 2;         ///< B, windows per forward pass
  int64_t accumulation = 1;  ///< forward passes per step
  int64_t tokens = 1024;     ///< T
  uint64_t seed = 1;         ///< of initialisation, order of the data and routing noise
  double learning_rate = 3e-3;
  Decay decay = Decay::cosine;
  int64_t warmup = 100;
  double final_fraction = 0.05;
  double decay_fraction = 0.2;
  double weight_decay = 0.1;  ///< of matrices; vectors are not decayed
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double clip = 1.0;               ///< largest global gradient norm; 0: not clipped
  int64_t statistics_every = 10;   ///< steps between routing statistics in the metrics; 0: never
  int64_t evaluate_every = 0;      ///< steps between losses on held-out text; 0: never
  int64_t evaluate_windows = 32;   ///< held-out windows of such a loss, from the first on
  int64_t checkpoint_every = 500;  ///< steps; 0: only at the end
  int64_t checkpoints_kept = 2;    ///< newest ones; older ones are deleted

  ScheduleOptions schedule() const {
    return {decay, learning_rate, steps, warmup, final_fraction, decay_fraction};
  }
  int64_t samples_per_step() const { return batch * accumulation; }
};

struct RunConfig {
  MetaAttentionConfig model;
  DataConfig data;
  TrainConfig train;
};

nlohmann::json to_json(const RunConfig& config);

/// Reads and validates; absent keys keep their defaults.
/// Throws ArgumentError naming the key: unknown (with the nearest), wrong kind, out of range.
RunConfig run_config_from_json(const nlohmann::json& json);

/// Reads a file that holds one JSON document. Throws IoError, ArgumentError with line and column.
nlohmann::json read_json(const std::string& path);

/// Applies "train.steps=100" to a document: the value is JSON where it parses as such, else a
/// string. Objects on the way are made; whether the key exists is checked when the document is
/// read. Throws ArgumentError (no '=', an empty key, a step through something else than an object).
void apply_override(nlohmann::json& document, const std::string& assignment);

/// The lines "key: a here, b there" for every leaf in which two documents differ.
std::vector<std::string> differences(
    const nlohmann::json& here, const nlohmann::json& there, const std::string& path = "");

}  // namespace sluice
