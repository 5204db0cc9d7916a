#include "models/meta_attention.h"

#include <algorithm>
#include <cmath>

#include "engine/errors.h"
#include "ops/binary.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/reduce.h"
#include "ops/rms_norm.h"

namespace sluice {
namespace {

MetaAttentionConfig validated(const MetaAttentionConfig& config) {
  validate(config);
  return config;
}

}  // namespace

MetaAttentionLM::MetaAttentionLM(const MetaAttentionConfig& config, uint64_t seed)
    : config_(validated(config)), multiplier_(zeros({1})) {
  Initialiser init(seed);
  Initialiser routers(seed, uint64_t{1} << 31);
  embedding_ = init.normal({config.vocabulary, config.width}, 0.02);
  const double depth_scale = 0.02 / std::sqrt(2.0 * double(config.layers));
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    AttentionLayer attention(config_, layer, init, routers);
    const Tensor norm = init.constant({config.width}, 1);
    const Tensor up = init.normal({config.feed_forward, config.width}, 0.02);
    const Tensor down = init.normal({config.width, config.feed_forward}, depth_scale);
    blocks_.push_back({std::move(attention), norm, up, down});
  }
  norm_ = init.constant({config.width}, 1);
}

Tensor MetaAttentionLM::Block::feed_forward(const Tensor& x) const {
  const Tensor hidden =
      ops::linear(ops::rms_norm(x, norm), up, {}, {.activation = ops::Activation::gelu});
  return ops::add(x, ops::linear(hidden, down, {}));
}

Tensor MetaAttentionLM::logits(const Tensor& x) const {
  return ops::linear(ops::rms_norm(x, norm_), embedding_, {});
}

ModelOutput MetaAttentionLM::forward(
    const Tensor& tokens, const Tensor& targets, const StepOptions& options) const {
  SLUICE_CHECK(
      tokens.rank() == 2 && tokens.size(1) <= config_.context,
      ShapeError,
      "model: tokens must be (B, T) with T <= {}, got {}",
      config_.context,
      to_string(tokens.shape()));
  ModelOutput output;
  Tensor kl;
  Tensor cost;
  int routed_layers = 0;
  Tensor x = ops::embedding(embedding_, tokens);
  for (const Block& block : blocks_) {
    LayerOutput layer = block.attention(x, options);
    x = block.feed_forward(ops::add(x, layer.out));
    layer.out = Tensor();
    output.attention_ms += layer.attention_ms;
    output.controller_ms += layer.controller_ms;
    if (layer.decision.kl.defined()) {
      ++routed_layers;
      kl = kl.defined() ? ops::add(kl, layer.decision.kl) : layer.decision.kl;
      cost = cost.defined() ? ops::add(cost, layer.decision.cost) : layer.decision.cost;
    }
    output.layers.push_back(std::move(layer));
  }
  output.logits = logits(x);
  if (!targets.defined()) return output;

  if (!options.training) {
    output.token_losses =
        ops::cross_entropy(output.logits, targets, {.reduction = ops::Reduction::none});
  }
  output.cross_entropy = ops::cross_entropy(output.logits, targets);
  output.objective = output.cross_entropy;
  if (routed_layers > 0) {
    cost = ops::mul(cost, 1.0 / routed_layers);
    output.kl = double(kl.item<float>());
    output.expected_cost = double(cost.item<float>());
    output.objective = ops::add(output.objective, ops::mul(kl, config_.elbo_weight));
    if (options.hold_cost) {
      output.objective = ops::add(output.objective, ops::mul(cost, multiplier()));
    }
  }
  return output;
}

double MetaAttentionLM::multiplier() const { return double(*multiplier_.data<float>()); }

void MetaAttentionLM::update_multiplier(const ModelOutput& output) {
  if (config_.target_cost <= 0) return;
  const double moved =
      multiplier() + config_.multiplier_rate * (output.expected_cost - config_.target_cost);
  fill(multiplier_, std::max(0.0, moved));
}

std::vector<NamedTensor> MetaAttentionLM::parameters() const {
  std::vector<NamedTensor> all = {{"embedding.weight", embedding_}};
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const std::string prefix = fmt::format("layers.{}.", i);
    blocks_[i].attention.collect(prefix + "attention.", all);
    all.push_back({prefix + "feed_forward.norm.weight", blocks_[i].norm});
    all.push_back({prefix + "feed_forward.up.weight", blocks_[i].up});
    all.push_back({prefix + "feed_forward.down.weight", blocks_[i].down});
  }
  all.push_back({"norm.weight", norm_});
  return all;
}

std::vector<NamedTensor> MetaAttentionLM::buffers() const {
  std::vector<NamedTensor> all = {{"multiplier", multiplier_}};
  for (size_t i = 0; i < blocks_.size(); ++i) {
    blocks_[i].attention.collect_buffers(fmt::format("layers.{}.attention.", i), all);
  }
  return all;
}

}  // namespace sluice
