// Generation with cached keys and values: each new token takes its route and pays for that only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/tensor.h"
#include "models/meta_attention.h"
#include "ops/linear_attention.h"

namespace sluice {

/// Feeds tokens to a model in hard mode, one sequence, keeping keys, values and the state of linear
/// attention. Feeding a sequence in pieces equals feeding it at once: routes are the same unless
/// two posterior weights tie to rounding, values agree to rounding. Thread-safety: one thread at a
/// time; the model must outlive it and not change.
class Decoder {
 public:
  /// Throws ArgumentError for layers of kind `random` or `given`, whose routes do not come from the
  /// tokens.
  explicit Decoder(const MetaAttentionLM& model);

  /// Appends `tokens` and returns the logits of each, (n, V).
  /// Throws ArgumentError when the context would be exceeded, naming both lengths.
  Tensor feed(std::span<const int32_t> tokens);

  /// Number of tokens fed so far.
  int64_t position() const { return position_; }
  /// For each layer the expert of each token fed so far; empty for layers that do not route.
  const std::vector<std::vector<int32_t>>& routes() const { return routes_; }
  /// Memory held for keys, values and states.
  size_t cache_bytes() const;

 private:
  // What one projection of one layer remembers.
  struct Cache {
    Tensor k, v;  // (1, context, Hkv, D)
    ops::LinearAttentionState state;
  };

  Tensor attend(size_t layer, const Tensor& x);
  void remember(Cache& cache, const Heads& heads) const;
  Tensor run_expert(
      Cache& cache, const Heads& heads, Expert expert, const ops::QueryList& queries) const;
  Tensor run_routed(Cache& cache, const Heads& heads, const Tensor& ids, Expert expert) const;

  const MetaAttentionLM& model_;
  std::vector<std::vector<Cache>> caches_;  // by layer, then by projection
  std::vector<std::vector<int32_t>> routes_;
  int64_t position_ = 0;
};

}  // namespace sluice
