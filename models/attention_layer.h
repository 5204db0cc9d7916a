// One attention sublayer of a Meta-Attention model: routed, or one of the controls.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/tensor.h"
#include "models/controller.h"
#include "models/initialiser.h"
#include "models/meta_attention_config.h"
#include "models/module.h"
#include "models/route_decision.h"

namespace sluice {

/// Queries, keys and values after QK-norm and RoPE, (B, H, T, D) and (B, Hkv, T, D).
struct Heads {
  Tensor q, k, v;
};

/// QKV and output projections with per-head QK-norm.
struct Projection {
  Projection(const MetaAttentionConfig& config, Initialiser& init);

  /// Shapes  x: (B, T, C); `offset` is the position of the first token
  Heads heads(const Tensor& x, const MetaAttentionConfig& config, int64_t offset) const;
  void collect(const std::string& prefix, std::vector<NamedTensor>& parameters) const;

  Tensor qkv;     // ((H + 2 Hkv) D, C)
  Tensor out;     // (C, H D)
  Tensor q_norm;  // (H, D)
  Tensor k_norm;  // (Hkv, D)
};

/// (B, H, T, D) in (B, T, H, D) memory -> (B, T, H D), a view.
Tensor merge_heads(const Tensor& heads);

struct LayerOutput {
  Tensor out;                ///< (B, T, C), before the residual is added
  RouteDecision decision;    ///< ids and weights undefined in layers of one dense expert
  double attention_ms = 0;   ///< routing index and attention kernels, forward
  double controller_ms = 0;  ///< posterior and decision, forward
};

/// y = W_o E(norm(x)) with E the mixture or the routed experts.
///
/// With shared projections (the default) keys and values are projected once and only the algorithm
/// is routed; with separate ones each expert owns its projections, as published, and a routed token
/// still needs the keys and values of all tokens from its expert.
/// Thread-safety: one thread at a time (the baseline of straight-through is state).
class AttentionLayer {
 public:
  /// `routers` initialises the controller apart from the rest, so that models of one seed share the
  /// values of all parameters that they have in common.
  AttentionLayer(
      const MetaAttentionConfig& config, int64_t layer, Initialiser& init, Initialiser& routers);

  /// Shapes  x: (B, T, C), the residual stream
  LayerOutput operator()(const Tensor& x, const StepOptions& options) const;

  void collect(const std::string& prefix, std::vector<NamedTensor>& parameters) const;
  void collect_buffers(const std::string& prefix, std::vector<NamedTensor>& buffers) const;

  LayerKind kind() const { return kind_; }
  /// The expert of a layer of kind full, linear or window.
  Expert dense_expert() const;
  const Tensor& norm() const { return norm_; }
  const Projection& projection(Expert expert) const {
    return projections_[projections_.size() == 1 ? 0 : size_t(expert)];
  }
  const Controller* controller() const { return controller_.get(); }

 private:
  RouteDecision decide(const Tensor& x, const Tensor& normed, const StepOptions& options) const;
  Tensor mix(const Tensor& normed, const Tensor& weights, LayerOutput& result) const;
  Tensor route(
      const Tensor& normed,
      const RouteDecision& decision,
      const StepOptions& options,
      LayerOutput& result) const;

  MetaAttentionConfig config_;
  int64_t layer_;
  LayerKind kind_;
  Tensor norm_;                          // (C)
  std::vector<Projection> projections_;  // one, or one per expert
  std::shared_ptr<Controller> controller_;
  Tensor baseline_;  // (1), mean reward of straight-through
};

}  // namespace sluice
