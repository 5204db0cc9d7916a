// One optimiser step of a Meta-Attention model, and everything needed to go on from there.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/checkpoint.h"
#include "models/meta_attention.h"
#include "models/run_config.h"
#include "models/text_data.h"

namespace sluice {

/// What one step did. Values of the forward passes are means over them.
struct StepReport {
  int64_t step = 0;  ///< steps done, this one included
  double loss = 0;   ///< cross-entropy, nats per byte
  double objective = 0;
  double learning_rate = 0;
  double gradient_norm = 0;  ///< before clipping
  double kl = 0;             ///< summed over routed layers, nats
  double expected_cost = 0;  ///< of the routed layers, all-full = 1
  double multiplier = 0;     ///< that holds the cost, after the step
  RouteMode mode = RouteMode::soft;
  std::vector<RouteStats> layers;  ///< of the routed layers; empty in steps without statistics
};

/// One line of the metrics file: nothing in it depends on the clock.
nlohmann::json to_json(const StepReport& report);

/// Trains a model on a text. Every number is a function of the configuration, the text and the
/// step: a run that is saved and restored anywhere continues with the same bits, for any thread
/// count, on the same instruction set (kernels of another one sum in another order).
/// Thread-safety: one thread at a time.
class Trainer {
 public:
  /// A fresh model. Throws ArgumentError (a text shorter than T).
  Trainer(const RunConfig& config, TextData text);

  /// Samples train.accumulation batches, adds up their gradients, clips, and moves the parameters.
  /// Throws Error when the loss or the gradient norm is no longer a finite number; parameters,
  /// moments and multiplier are then as before. The baseline of straight-through may have moved, by
  /// finite amounts: each backward pass moves it.
  StepReport step();

  int64_t steps_done() const { return steps_done_; }
  bool finished() const { return steps_done_ >= config_.train.steps; }

  Checkpoint checkpoint() const;
  /// Continues from the checkpoint at `path`. Throws ArgumentError listing what differs when its
  /// configuration or text is not that of this trainer, IoError.
  void restore(const std::string& path);
  /// Takes parameters and buffers only, from a checkpoint of another run. Layers may be of another
  /// kind: a router that the checkpoint lacks keeps its initialisation. Throws as load_tensors.
  void start_from(const std::string& path);

  const RunConfig& config() const { return config_; }
  const TextData& text() const { return text_; }
  const MetaAttentionLM& model() const { return model_; }

 private:
  struct Moments {
    Tensor first;
    Tensor second;
  };

  /// Adds one batch's gradients, scaled by 1 / accumulation, and its values to `report`.
  void accumulate(int64_t part, StepReport& report);
  void update(StepReport& report);
  void clear_gradients() const;
  /// Clears the gradients and throws.
  [[noreturn]] void refuse(const char* what, double value, int64_t step) const;

  RunConfig config_;
  TextData text_;
  std::vector<uint8_t> given_mask_;  // of the training text; empty without layers of kind `given`
  MetaAttentionLM model_;
  std::vector<NamedTensor> parameters_;
  std::vector<Moments> moments_;
  int64_t steps_done_ = 0;
};

/// Parameters and buffers, as model.safetensors holds them.
std::vector<NamedTensor> state_tensors(const Module& module);

}  // namespace sluice
