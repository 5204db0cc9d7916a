// Full softmax attention.
#pragma once

#include "ops/attention_options.h"

namespace sluice::ops {

/// Softmax attention.
///
///   out[b,h,i] = gate[b,h] * sum_j softmax_j(scale * q[b,h,i] . k[b,g,j]) * v[b,g,j]
///
/// over the keys j that query i sees (AttentionOptions), g = h / (H / Hkv). A query that sees none
/// gives 0.
///
/// Shapes  q: (B, H, Tq, D), k, v: (B, Hkv, Tk, D), H % Hkv == 0, 1 <= D <= 256 -> (B, H, Tq, D),
///         stored as (B, Tq, H, D); any extent of T may be 0
/// DTypes  f32, f64, bf16 (scores and sums in f32)
/// Grads   q, k, v, head_gate; no atomics, repeated runs agree bit for bit, as do runs on any
/// number
///         of threads and with other batch entries
/// Cost    4 D flops per pair of a query and a key that it sees, 2.5 times that backward; saves
///         q, k, v, out and one number per row
/// Throws  ShapeError, DTypeError, DeviceError, ArgumentError (lengths, offsets, lists)
/// Source  Vaswani et al. 2017, arXiv:1706.03762, section 3.2; computed as in Dao et al. 2022,
///         arXiv:2205.14135
Tensor attention(
    const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {});

struct AttentionOutput {
  Tensor out;  ///< (B, H, Tq, D)
  Tensor lse;  ///< (B, H, Tq), f64 for f64, else f32: log sum_j exp(scale * q . k), -inf for none
};

/// The same with the logarithm of each row's denominator, with which partial results over disjoint
/// keys can be merged. lse is differentiable, too, and not gated.
AttentionOutput attention_with_lse(
    const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {});

}  // namespace sluice::ops
