#include "models/attention_layer.h"

#include <chrono>
#include <cmath>

#include "ops/attention.h"
#include "ops/binary.h"
#include "ops/linear.h"
#include "ops/linear_attention.h"
#include "ops/mix_experts.h"
#include "ops/qk_norm.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/routed_attention.h"
#include "ops/routing_index.h"
#include "ops/sliding_window_attention.h"
#include "ops/straight_through.h"
#include "ops/view.h"

namespace sluice {
namespace {

// Adds the time of its scope to a total.
class ScopedTimer {
 public:
  explicit ScopedTimer(double& milliseconds) : milliseconds_(milliseconds) {}
  ~ScopedTimer() {
    const auto elapsed = std::chrono::steady_clock::now() - start_;
    milliseconds_ += std::chrono::duration<double, std::milli>(elapsed).count();
  }
  ScopedTimer(const ScopedTimer&) = delete;
  ScopedTimer& operator=(const ScopedTimer&) = delete;

 private:
  double& milliseconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

Tensor dense_attention(Expert expert, const Heads& heads, int64_t window) {
  if (expert == Expert::full) return ops::attention(heads.q, heads.k, heads.v);
  if (expert == Expert::linear) return ops::linear_attention(heads.q, heads.k, heads.v);
  ops::SlidingWindow options;
  options.window = window;
  return ops::sliding_window_attention(heads.q, heads.k, heads.v, options);
}

// The ids of one expert kept, every other token dropped.
Tensor only(const Tensor& ids, Expert expert) {
  const Tensor kept = clone(ids);
  int32_t* id = kept.data<int32_t>();
  for (int64_t i = 0; i < kept.numel(); ++i) id[i] = id[i] == int32_t(expert) ? id[i] : -1;
  return kept;
}

}  // namespace

Tensor merge_heads(const Tensor& heads) {
  return ops::reshape(
      ops::permute(heads, {0, 2, 1, 3}),
      {heads.size(0), heads.size(2), heads.size(1) * heads.size(3)});
}

Projection::Projection(const MetaAttentionConfig& config, Initialiser& init) {
  const int64_t D = config.head_width();
  const int64_t rows = (config.heads + 2 * config.kv_heads) * D;
  qkv = init.normal({rows, config.width}, 0.02);
  out =
      init.normal({config.width, config.heads * D}, 0.02 / std::sqrt(2.0 * double(config.layers)));
  q_norm = init.constant({config.heads, D}, 1);
  k_norm = init.constant({config.kv_heads, D}, 1);
}

Heads Projection::heads(const Tensor& x, const MetaAttentionConfig& config, int64_t offset) const {
  const int64_t D = config.head_width();
  const std::vector<int64_t> widths = {config.heads * D, config.kv_heads * D, config.kv_heads * D};
  const auto parts = ops::split(ops::linear(x, qkv, {}), -1, widths);
  auto as_heads = [&](const Tensor& part, int64_t count) {
    return ops::permute(ops::reshape(part, {x.size(0), x.size(1), count, D}), {0, 2, 1, 3});
  };
  ops::RopeOptions rope;
  rope.theta = config.rope_theta;
  rope.offset = offset;
  return {
      ops::rope(ops::qk_norm(as_heads(parts[0], config.heads), q_norm), rope),
      ops::rope(ops::qk_norm(as_heads(parts[1], config.kv_heads), k_norm), rope),
      as_heads(parts[2], config.kv_heads)};
}

void Projection::collect(const std::string& prefix, std::vector<NamedTensor>& parameters) const {
  parameters.push_back({prefix + "qkv.weight", qkv});
  parameters.push_back({prefix + "out.weight", out});
  parameters.push_back({prefix + "q_norm.weight", q_norm});
  parameters.push_back({prefix + "k_norm.weight", k_norm});
}

AttentionLayer::AttentionLayer(
    const MetaAttentionConfig& config, int64_t layer, Initialiser& init, Initialiser& routers)
    : config_(config),
      layer_(layer),
      kind_(config.kind(layer)),
      norm_(init.constant({config.width}, 1)),
      baseline_(zeros({1})) {
  const int count = config.separate_projections ? kExperts : 1;
  for (int i = 0; i < count; ++i) projections_.emplace_back(config, init);
  if (kind_ == LayerKind::routed)
    controller_ = std::make_shared<Controller>(config, layer, routers);
}

RouteDecision AttentionLayer::decide(
    const Tensor& x, const Tensor& normed, const StepOptions& options) const {
  // Streams above 2^32 leave the low ones to parameters and data; a layer owns 256 of them a step.
  const PhiloxKey key{options.seed, (options.step + 1) << 32 | uint64_t(layer_) << 8};
  if (kind_ != LayerKind::routed) {
    return decide_control(kind_, x.size(0), x.size(1), config_, options, key);
  }
  // A mode that ignores the posterior does not pay for it, unless it is asked to report it.
  Posterior posterior;
  if (reads_posterior(options.mode) || options.statistics) {
    posterior = (*controller_)(x, normed, 0);
  }
  return decide_routed(posterior, x.size(0), x.size(1), config_, layer_, options, key);
}

Tensor AttentionLayer::mix(const Tensor& normed, const Tensor& weights, LayerOutput& result) const {
  const bool shared = projections_.size() == 1;
  Heads heads;
  std::vector<Tensor> outputs;
  for (int k = 0; k < kExperts; ++k) {
    const Projection& own = projection(Expert(k));
    if (k == 0 || !shared) heads = own.heads(normed, config_, 0);
    {
      const ScopedTimer timer(result.attention_ms);
      outputs.push_back(merge_heads(dense_attention(Expert(k), heads, config_.window)));
    }
    if (!shared) outputs.back() = ops::linear(outputs.back(), own.out, {});
  }
  Tensor mixed;
  {
    const ScopedTimer timer(result.attention_ms);
    mixed = ops::mix_experts(weights, outputs);
  }
  return shared ? ops::linear(mixed, projections_[0].out, {}) : mixed;
}

Tensor AttentionLayer::route(
    const Tensor& normed,
    const RouteDecision& decision,
    const StepOptions& options,
    LayerOutput& result) const {
  ops::RoutedAttentionOptions attention;
  attention.window = config_.window;
  attention.form = options.unfused ? ops::RoutedForm::unfused : ops::RoutedForm::fused;
  auto run = [&](const Heads& heads, const Tensor& ids) {
    const ScopedTimer timer(result.attention_ms);
    const ops::RoutingIndex index = ops::routing_index(ids, kExperts);
    return merge_heads(ops::routed_attention(heads.q, heads.k, heads.v, index, attention));
  };
  auto with_gradient = [&](const Tensor& rows) {
    if (!decision.drawn_weight.defined()) return rows;
    return ops::straight_through(rows, decision.drawn_weight, baseline_);
  };
  if (projections_.size() == 1) {
    const Heads heads = projections_[0].heads(normed, config_, 0);
    return ops::linear(with_gradient(run(heads, decision.ids)), projections_[0].out, {});
  }
  // Separate projections: rows of other experts come out as zeros, so the sum is the routed output.
  Tensor sum;
  for (int k = 0; k < kExperts; ++k) {
    const Projection& own = projection(Expert(k));
    const Heads heads = own.heads(normed, config_, 0);
    const Tensor rows = ops::linear(run(heads, only(decision.ids, Expert(k))), own.out, {});
    sum = sum.defined() ? ops::add(sum, rows) : rows;
  }
  return with_gradient(sum);
}

Expert AttentionLayer::dense_expert() const {
  if (kind_ == LayerKind::full) return Expert::full;
  return kind_ == LayerKind::linear ? Expert::linear : Expert::window;
}

LayerOutput AttentionLayer::operator()(const Tensor& x, const StepOptions& options) const {
  LayerOutput result;
  const Tensor normed = ops::rms_norm(x, norm_);
  {
    const ScopedTimer timer(result.controller_ms);
    result.decision = decide(x, normed, options);
  }
  const RouteDecision& decision = result.decision;
  if (decision.ids.defined()) {
    result.out = route(normed, decision, options, result);
    if (options.statistics) {
      RouteStats& stats = result.decision.stats;
      stats.share = route_shares(decision.ids);
      const auto costs = expert_costs(config_, x.size(1));
      for (size_t k = 0; k < kExperts; ++k) stats.hard_cost += stats.share[k] * costs[k];
    }
  } else if (decision.weights.defined()) {
    result.out = mix(normed, decision.weights, result);
  } else {
    const Projection& own = projection(dense_expert());
    const Heads heads = own.heads(normed, config_, 0);
    Tensor attended;
    {
      const ScopedTimer timer(result.attention_ms);
      attended = merge_heads(dense_attention(dense_expert(), heads, config_.window));
    }
    result.out = ops::linear(attended, own.out, {});
  }
  return result;
}

void AttentionLayer::collect(
    const std::string& prefix, std::vector<NamedTensor>& parameters) const {
  parameters.push_back({prefix + "norm.weight", norm_});
  for (size_t i = 0; i < projections_.size(); ++i) {
    const std::string owner =
        projections_.size() == 1 ? "" : std::string(name_of(Expert(int(i)))) + ".";
    projections_[i].collect(prefix + owner, parameters);
  }
  if (controller_) controller_->collect(prefix + "controller.", parameters);
}

void AttentionLayer::collect_buffers(
    const std::string& prefix, std::vector<NamedTensor>& buffers) const {
  if (controller_) buffers.push_back({prefix + "baseline", baseline_});
}

}  // namespace sluice
