// Causal or bidirectional linear attention, and its recurrent form for decoding.
#pragma once

#include "ops/attention_options.h"

namespace sluice::ops {

/// Linear attention with phi(x) = elu(x) + 1.
///
///   out[b,h,i] = gate[b,h] * sum_j w_ij v[b,g,j] / sum_j w_ij,  w_ij = phi(q[b,h,i]) .
///   phi(k[b,g,j])
///
/// over the keys j that query i sees (AttentionOptions), g = h / (H / Hkv). No scale (options.scale
/// plays no part) and no epsilon: a denominator of 0 (below 1e-30 in f32, where gradients would
/// overflow) gives output 0 and gradients 0.
///
/// Shapes  q: (B, H, Tq, D), k, v: (B, Hkv, Tk, D), H % Hkv == 0, 1 <= D <= 256 -> (B, H, Tq, D),
///         stored as (B, Tq, H, D); any extent of T may be 0
/// DTypes  f32, f64, bf16 (features, state and sums in f32)
/// Grads   q, k, v, head_gate; no atomics, the same bits on any number of threads. The bits of a
///         sequence may depend on the number and lengths of its neighbours, since long sequences
///         are cut into spans of time when there are few
/// Cost    2 D^2 flops per key and head of k to advance the state, 2 D (D + 32) per query and head
///         of q, 2.5 times that backward; saves q, k, v, out and one number per row. With a query
///         list every key up to the last listed query is paid for, queries only when listed
/// Throws  ShapeError, DTypeError, DeviceError, ArgumentError (lengths, offsets, lists)
/// Source  Katharopoulos et al. 2020, arXiv:2006.16236, equations 7 to 12, in chunks
Tensor linear_attention(
    const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {});

/// What linear attention remembers of the tokens so far, for decoding one token after another.
struct LinearAttentionState {
  /// (B, Hkv, D, D + 1), f64 for f64, else f32: sum_j phi(k_j) [v_j, 1]^T.
  Tensor sums;
};

/// The state before the first token. `options.dtype` is that of k and v.
LinearAttentionState linear_attention_state(
    int64_t batch, int64_t kv_heads, int64_t head_size, TensorOptions options = {});

/// The next T tokens: absorbs their keys and values into `state` and returns the outputs of their
/// queries, as linear_attention over all tokens so far would give them. T = 1 decodes, a long T
/// takes in a prompt.
///
/// Shapes  q: (B, H, T, D), k, v: (B, Hkv, T, D) -> (B, H, T, D)
/// Grads   none; GradError when an input takes part in a graph while recording is on
/// Throws  ShapeError, DTypeError, DeviceError
Tensor linear_attention_step(
    LinearAttentionState& state, const Tensor& q, const Tensor& k, const Tensor& v);

/// Absorbs tokens whose queries go elsewhere, as in routed attention. Throws as the above.
void linear_attention_absorb(LinearAttentionState& state, const Tensor& k, const Tensor& v);

}  // namespace sluice::ops
