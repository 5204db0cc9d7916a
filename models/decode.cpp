#include "models/decode.h"

#include <algorithm>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "models/routes.h"
#include "ops/attention.h"
#include "ops/binary.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/mix_experts.h"
#include "ops/rms_norm.h"
#include "ops/sliding_window_attention.h"
#include "ops/view.h"

namespace sluice {
namespace {

// Rows [begin, end) of a cache (1, context, Hkv, D), seen as (1, Hkv, end - begin, D).
Tensor rows(const Tensor& cache, int64_t begin, int64_t end) {
  return ops::permute(ops::slice(cache, 1, begin, end), {0, 2, 1, 3});
}

// The tokens of ids (1, n) that `expert` serves.
ops::QueryList queries_of(const Tensor& ids, Expert expert) {
  std::vector<int32_t> positions;
  const int32_t* id = ids.data<int32_t>();
  for (int64_t t = 0; t < ids.numel(); ++t) {
    if (id[t] == int32_t(expert)) positions.push_back(int32_t(t));
  }
  const auto count = static_cast<int64_t>(positions.size());
  return {
      from_values(positions, {count}), from_values(std::vector<int32_t>{0, int32_t(count)}, {2})};
}

// (1, 1, n, 1): 1 where `expert` serves the token, 0 elsewhere.
Tensor served(const Tensor& ids, Expert expert) {
  const Tensor mask = zeros({1, 1, ids.numel(), 1});
  for (int64_t t = 0; t < ids.numel(); ++t) {
    if (ids.data<int32_t>()[t] == int32_t(expert)) mask.data<float>()[t] = 1.0f;
  }
  return mask;
}

}  // namespace

Decoder::Decoder(const MetaAttentionLM& model) : model_(model) {
  const MetaAttentionConfig& config = model.config();
  const Shape shape({1, config.context, config.kv_heads, config.head_width()});
  for (const MetaAttentionLM::Block& block : model.blocks()) {
    const LayerKind kind = block.attention.kind();
    SLUICE_CHECK(
        kind != LayerKind::random && kind != LayerKind::given,
        ArgumentError,
        "decoder: layers must route by their tokens, got kind '{}'",
        name_of(kind));
    const int projections = config.separate_projections ? kExperts : 1;
    std::vector<Cache> caches;
    for (int i = 0; i < projections; ++i) {
      caches.push_back(
          {empty(shape),
           empty(shape),
           ops::linear_attention_state(1, config.kv_heads, config.head_width())});
    }
    caches_.push_back(std::move(caches));
  }
  routes_.resize(caches_.size());
}

void Decoder::remember(Cache& cache, const Heads& heads) const {
  const int64_t end = position_ + heads.k.size(2);
  copy_into(rows(cache.k, position_, end), heads.k);
  copy_into(rows(cache.v, position_, end), heads.v);
}

// One expert over the newest queries (those of `queries`, all when it is undefined). Linear
// attention works on its state alone and computes every row it is given.
Tensor Decoder::run_expert(
    Cache& cache, const Heads& heads, Expert expert, const ops::QueryList& queries) const {
  if (expert == Expert::linear) {
    return ops::linear_attention_step(cache.state, heads.q, heads.k, heads.v);
  }
  const int64_t n = heads.q.size(2);
  const int64_t end = position_ + n;
  ops::SlidingWindow options;
  options.queries = queries;
  if (expert == Expert::full) {
    return ops::attention(heads.q, rows(cache.k, 0, end), rows(cache.v, 0, end), options);
  }
  options.window = model_.config().window;
  // The oldest key that the first of the queries can see.
  const int64_t begin = std::max<int64_t>(0, position_ - options.window + 1);
  return ops::sliding_window_attention(
      heads.q, rows(cache.k, begin, end), rows(cache.v, begin, end), options);
}

// Every token to its expert; rows of the others are 0.
Tensor Decoder::run_routed(
    Cache& cache, const Heads& heads, const Tensor& ids, Expert expert) const {
  const ops::QueryList queries = queries_of(ids, expert);
  const bool used = queries.positions.numel() > 0;
  if (expert != Expert::linear) return used ? run_expert(cache, heads, expert, queries) : Tensor();
  if (!used) {
    ops::linear_attention_absorb(cache.state, heads.k, heads.v);
    return {};
  }
  return ops::mul(run_expert(cache, heads, expert, {}), served(ids, expert));
}

Tensor Decoder::attend(size_t layer, const Tensor& x) {
  const AttentionLayer& attention = model_.blocks()[layer].attention;
  const Tensor normed = ops::rms_norm(x, attention.norm());
  RouteDecision decision;
  if (attention.kind() == LayerKind::routed) {
    decision.ids = argmax_routes((*attention.controller())(x, normed, position_).concentration);
    const auto ids = decision.ids.to_vector<int32_t>();
    routes_[layer].insert(routes_[layer].end(), ids.begin(), ids.end());
  } else {
    decision =
        decide_control(attention.kind(), 1, x.size(1), model_.config(), StepOptions(), PhiloxKey());
  }

  auto& caches = caches_[layer];
  const bool shared = caches.size() == 1;
  Heads heads;
  std::vector<Tensor> outputs;
  Tensor sum;
  for (int k = 0; k < kExperts; ++k) {
    const Expert expert = Expert(k);
    const Projection& own = attention.projection(expert);
    Cache& cache = caches[shared ? 0 : size_t(k)];
    if (k == 0 || !shared) {
      heads = own.heads(normed, model_.config(), position_);
      remember(cache, heads);
    }
    Tensor out;
    if (decision.ids.defined())
      out = run_routed(cache, heads, decision.ids, expert);
    else if (decision.weights.defined())
      out = run_expert(cache, heads, expert, {});
    else if (expert == attention.dense_expert())
      out = run_expert(cache, heads, expert, {});
    if (!out.defined()) continue;
    out = merge_heads(out);
    if (!shared) out = ops::linear(out, own.out, {});
    if (decision.weights.defined())
      outputs.push_back(out);
    else
      sum = sum.defined() ? ops::add(sum, out) : out;
  }
  if (decision.weights.defined()) sum = ops::mix_experts(decision.weights, outputs);
  return shared ? ops::linear(sum, attention.projection(Expert::full).out, {}) : sum;
}

Tensor Decoder::feed(std::span<const int32_t> tokens) {
  const autograd::NoGrad no_grad;
  const auto n = static_cast<int64_t>(tokens.size());
  SLUICE_CHECK(
      position_ + n <= model_.config().context,
      ArgumentError,
      "decoder: context is {} tokens, got {} after {}",
      model_.config().context,
      n,
      position_);
  Tensor x = ops::embedding(model_.embedding(), from_values(tokens, {1, n}));
  for (size_t layer = 0; layer < caches_.size(); ++layer) {
    x = model_.blocks()[layer].feed_forward(ops::add(x, attend(layer, x)));
  }
  position_ += n;
  return ops::reshape(model_.logits(x), {n, model_.config().vocabulary});
}

size_t Decoder::cache_bytes() const {
  size_t bytes = 0;
  for (const auto& caches : caches_) {
    for (const Cache& cache : caches) {
      bytes += cache.k.storage()->bytes() + cache.v.storage()->bytes();
      bytes += cache.state.sums.storage()->bytes();
    }
  }
  return bytes;
}

}  // namespace sluice
