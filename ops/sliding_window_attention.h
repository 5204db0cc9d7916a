// Softmax attention to near keys only.
#pragma once

#include "ops/attention_options.h"

namespace sluice::ops {

struct SlidingWindow : AttentionOptions {
  /// Causal: number of keys seen, the query's own position p included: p - window < j <= p.
  /// Otherwise a radius: p - window <= j <= p + window.
  int64_t window = 0;
};

/// Softmax attention restricted to a window of keys.
///
///   out[b,h,i] = gate[b,h] * sum_j softmax_j(scale * q[b,h,i] . k[b,g,j]) * v[b,g,j]
///
/// over the keys j of the window that query i sees (AttentionOptions), g = h / (H / Hkv). A window
/// of at least Tk keys gives the bits of `attention`.
///
/// Shapes  q: (B, H, Tq, D), k, v: (B, Hkv, Tk, D), H % Hkv == 0, 1 <= D <= 256 -> (B, H, Tq, D),
///         stored as (B, Tq, H, D); any extent of T may be 0
/// DTypes  f32, f64, bf16 (scores and sums in f32)
/// Grads   q, k, v, head_gate; no atomics, repeated runs agree bit for bit, as do runs on any
/// number
///         of threads and with other batch entries
/// Cost    4 B H Tq min(Tk, window) D flops, 2.5 times that backward; saves q, k, v, out and one
///         number per row
/// Throws  ShapeError, DTypeError, DeviceError, ArgumentError (window <= 0, lengths, offsets,
/// lists) Source  Beltagy, Peters, Cohan 2020, arXiv:2004.05150, section 3.1
Tensor sliding_window_attention(
    const Tensor& q, const Tensor& k, const Tensor& v, const SlidingWindow& options);

}  // namespace sluice::ops
