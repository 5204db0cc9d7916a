// The options that every attention algorithm takes: who may see whom, which heads and which queries
// are computed.
#pragma once

#include <optional>

#include "engine/tensor.h"

namespace sluice::ops {

/// The query rows to compute, grouped by sequence. Rows that are not listed cost nothing and are 0
/// in the output and in the gradient of q.
struct QueryList {
  Tensor positions =
      {};  ///< (N) i32: row of the query within its sequence, rising in each sequence
  Tensor offsets =
      {};  ///< (sequences + 1) i32: sequence s has entries [offsets[s], offsets[s + 1])
};

/// Query i of a sequence with Tq queries and Tk keys stands at position p = i + Tk - Tq: the last
/// query is aligned with the last key. A query that sees no key gives 0 and gradients of 0.
///
/// Values are assumed finite: a NaN or an infinity in v may reach up to 7 queries beside those that
/// see it, which share a group of rows. Masked tokens (`keep`, lengths) may hold anything.
struct AttentionOptions {
  bool causal = true;                ///< query p sees keys j <= p
  std::optional<double> scale = {};  ///< of q . k; 1 / sqrt(D) when absent

  Tensor segments = {};  ///< (B, Tk) i32: runs of equal ids; a query sees its own segment only
  Tensor keep = {};  ///< (B, Tk) u8: 0 masks the token, as a key and as the query that stands there

  Tensor query_lengths = {};  ///< (B) i32: valid leading rows of q; all when undefined
  Tensor key_lengths = {};    ///< (B) i32: valid leading rows of k and v; all when undefined

  /// Packed sequences, B == 1: sequence s has query rows [query_offsets[s], query_offsets[s + 1])
  /// and key rows likewise, each sequence aligned by itself. Both or none. Rows past the last
  /// offset are 0 in the output and in every gradient.
  Tensor query_offsets = {};  ///< (N + 1) i32
  Tensor key_offsets = {};    ///< (N + 1) i32

  /// (P, 2) i32: the (sequence, head) pairs to compute, an unpacked batch entry being a sequence.
  /// The others cost nothing and give 0.
  Tensor live_heads = {};
  Tensor head_gate =
      {};  ///< (H) or (B, H), floating, differentiable: multiplies each head's output
  QueryList queries = {};
};

}  // namespace sluice::ops
