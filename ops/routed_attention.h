// Attention whose algorithm is chosen token by token, at the cost of the chosen one.
#pragma once

#include "ops/attention_options.h"
#include "ops/routing_index.h"

namespace sluice::ops {

enum class RoutedForm {
  fused,    ///< kernels take lists of queries: rows are read and written where tokens lie
  unfused,  ///< gather rows per expert, dense kernels on compact rows, scatter
};

/// `queries` must be undefined (the index takes its place), as must the packed offsets.
struct RoutedAttentionOptions : AttentionOptions {
  int64_t window = 0;  ///< of expert 2; see SlidingWindow
  RoutedForm form = RoutedForm::fused;
};

/// Each query takes the attention algorithm it was routed to; keys and values of all tokens are
/// visible to every algorithm.
///
///   out[b,h,t] = expert_{ids[b,t]}(q, k, v)[b,h,t]
///   expert 0 = attention, 1 = linear_attention, 2 = sliding_window_attention
///
/// A dropped token (-1) gives a row of zeros. With `query_lengths` the padding must be dropped: an
/// id other than -1 past a sequence's length is an error. An expert without tokens costs nothing,
/// forward and backward. Both forms give the same numbers up to rounding.
///
/// Shapes  q: (B, H, T, D), k, v: (B, Hkv, Tk, D), H % Hkv == 0; index over (B, T), 3 experts, one
///         choice per token -> (B, H, T, D), stored as (B, T, H, D)
/// DTypes  f32, f64, bf16 (scores, features and sums in f32)
/// Grads   q, k, v, head_gate. The experts run in the order 0, 1, 2 and own disjoint rows of the
///         gradient of q; those of k and v are added up in that order, in f32 when q is bf16
///         (unfused: in the dtype). Repeated runs agree bit for bit, as do runs on any number of
///         threads
/// Cost    per query 4 H D flops for each key seen (full: up to T, window: up to `window`) and
///         4 H D (D + 16) for a linear one, beside 4 Hkv D^2 per token when any query is
///         linear; 2.5 times that backward. Saves q, k, v, out and one number per row. Unfused
///         copies the rows of q and out once more
/// Throws  as the three algorithms, in the name of routed_attention, and ShapeError (index of other
///         extents), ArgumentError (experts != 3, choices != 1, window <= 0, packed offsets,
///         queries, a padding token with an expert)
/// Source  arXiv:2605.28384, whose code runs every expert on every token and multiplies by a mask
Tensor routed_attention(
    const Tensor& q,
    const Tensor& k,
    const Tensor& v,
    const RoutingIndex& index,
    const RoutedAttentionOptions& options);

}  // namespace sluice::ops
