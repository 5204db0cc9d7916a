// Linear attention with phi(x) = elu(x) + 1 on the CPU. Queries meet the keys before them through a
// state (D, D + 1): sum_j phi(k_j) [v_j, 1]^T, so the cost grows with T, not with T^2.
#pragma once

#include "kernels/attention.h"

namespace sluice::kernels {

/// out[i] = sum_j w_ij v_j / sum_j w_ij, w_ij = phi(q_i) . phi(k_j), j over the keys that
/// AttentionProblem lets query i see; `scale` and `window` play no part. Writes the rows of the
/// queries to compute in live pairs and no others. A denominator of 0 (f32: below 1e-30) gives 0.
struct LinearAttentionForward : AttentionProblem {
  HeadRows q{}, k{}, v{}, out{};
  /// (B, H, T) in Accumulator<dtype>: the denominators, for the backward pass; data may be null.
  HeadRows normalizer{};
  /// (sequences, kv_heads, D, D + 1) in Accumulator<dtype>, dense: what came before the first key,
  /// replaced by what has been seen after the last. Null: nothing came before. Causal only, without
  /// segments.
  void* state = nullptr;
  void* scratch = nullptr;
};

/// Gradients of LinearAttentionForward (without state). grad_q follows the rule of `out`; grad_k
/// and grad_v are written for every key of every sequence. Each may be null.
struct LinearAttentionBackward : AttentionProblem {
  HeadRows q{}, k{}, v{}, out{}, normalizer{}, grad_out{};
  HeadRows grad_q{}, grad_k{}, grad_v{};
  /// Of grad_k and grad_v: dtype, or f32 when several calls add up bf16 gradients.
  DType kv_grad_dtype = DType::f32;
  bool accumulate = false;  ///< add to grad_k and grad_v instead of overwriting them
  void* scratch = nullptr;
};

/// Bytes of `scratch`, 64-byte aligned, for a run on `threads` threads.
size_t linear_attention_forward_scratch_bytes(const LinearAttentionForward& args, int threads);
size_t linear_attention_backward_scratch_bytes(const AttentionProblem& problem, int threads);

void linear_attention_forward(CpuContext& context, const LinearAttentionForward& args);
void linear_attention_backward(CpuContext& context, const LinearAttentionBackward& args);

}  // namespace sluice::kernels
