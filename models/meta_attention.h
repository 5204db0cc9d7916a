// A decoder language model whose tokens choose their attention.
#pragma once

#include <vector>

#include "engine/tensor.h"
#include "models/attention_layer.h"
#include "models/meta_attention_config.h"
#include "models/module.h"

namespace sluice {

struct ModelOutput {
  Tensor logits;             ///< (B, T, V)
  Tensor token_losses;       ///< (B, T) f32, nats; undefined without targets and in training
  Tensor cross_entropy;      ///< their mean, scalar; undefined without targets
  Tensor objective;          ///< what training minimises, scalar; undefined without targets
  double expected_cost = 0;  ///< mean over routed layers, all-full = 1; training only
  double kl = 0;             ///< sum over routed layers of the mean KL, nats; training only
  double attention_ms = 0;   ///< forward, all layers
  double controller_ms = 0;
  std::vector<LayerOutput> layers;
};

/// Pre-norm decoder: tied embedding, per layer routed attention and a GELU feed-forward network,
/// RMSNorm, RoPE, QK-norm.
///
///   objective = CE + w * sum_l KL_l + lambda * mean_l cost_l
///
/// lambda rises while the expected cost exceeds the target and falls to 0 below it (dual ascent).
/// Causal in every mode but `random`, which shuffles the routes of a whole row: the output at t
/// depends on tokens 0..t only.
///
/// Source  arXiv:2605.28384; departs from it: causal experts, shared projections, QK-norm and RoPE,
///         features from the residual stream, cost held by a multiplier
/// Thread-safety: one thread at a time.
class MetaAttentionLM final : public Module {
 public:
  /// Throws ArgumentError (validate(config)).
  MetaAttentionLM(const MetaAttentionConfig& config, uint64_t seed);

  /// Shapes  tokens, targets: (B, T) i32, T <= context; a target of -1 is ignored; targets may be
  ///         undefined, then there are only logits
  /// Throws  ShapeError, ArgumentError (token out of range)
  ModelOutput forward(
      const Tensor& tokens, const Tensor& targets, const StepOptions& options) const;

  /// Moves the multiplier after a training step that held the cost.
  void update_multiplier(const ModelOutput& output);
  double multiplier() const;

  std::vector<NamedTensor> parameters() const override;
  std::vector<NamedTensor> buffers() const override;
  const MetaAttentionConfig& config() const { return config_; }

  struct Block {
    AttentionLayer attention;
    Tensor norm;  // (C)
    Tensor up;    // (F, C)
    Tensor down;  // (C, F)

    /// x + FFN(norm(x))
    Tensor feed_forward(const Tensor& x) const;
  };
  const std::vector<Block>& blocks() const { return blocks_; }
  const Tensor& embedding() const { return embedding_; }
  /// Final norm and tied output: (B, T, C) -> (B, T, V).
  Tensor logits(const Tensor& x) const;

 private:
  MetaAttentionConfig config_;
  Tensor embedding_;  // (V, C)
  std::vector<Block> blocks_;
  Tensor norm_;        // (C)
  Tensor multiplier_;  // (1), lambda
};

}  // namespace sluice
