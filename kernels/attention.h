// Softmax attention on the CPU: what all attention kernels (full, window, linear) are told about
// their problem, and the launchers of the softmax ones.
#pragma once

#include <cstddef>

#include "engine/context.h"
#include "engine/dtype.h"
#include "kernels/key_range.h"
#include "kernels/row_strides.h"

namespace sluice::kernels {

/// A (B, H, T, D) operand with unit stride along D, or a (B, H, T) one, at any alignment.
struct HeadRows {
  void* data = nullptr;
  RowStrides strides{};

  SLUICE_INLINE int64_t offset(int64_t b, int64_t h, int64_t t) const {
    return b * strides.batch + h * strides.head + t * strides.token;
  }
};

/// A run of query rows and the run of key rows that they may attend to. A batch is one sequence per
/// entry, a packed batch several in entry 0.
struct AttentionSequence {
  int64_t batch = 0;      ///< entry of q, k, v, out
  int64_t query_row = 0;  ///< first row in q and out
  int64_t queries = 0;
  int64_t key_row = 0;  ///< first row in k and v
  int64_t keys = 0;
  int64_t mask_row = 0;  ///< first row in the arrays of AttentionProblem that go by key
};

/// The queries to compute, when not all of them. Sequence s has slots [offsets[s], offsets[s + 1]);
/// a slot holds the index of a query within its sequence, rising within each sequence.
struct QuerySlots {
  const int32_t* positions = nullptr;  ///< null: every query
  const int32_t* offsets = nullptr;    ///< (sequences + 1)
  /// Query-side operands (q, out, lse and their gradients) hold one row per slot, in entry 0,
  /// starting with slot offsets[0]; otherwise a query's row is its token's.
  bool compact = false;
};

/// What is attended to by whom: shared by forward and backward and by every algorithm.
struct AttentionProblem {
  DType dtype = DType::f32;
  int heads = 0;
  int kv_heads = 0;  ///< query head h reads key head h / (heads / kv_heads)
  int head_size = 0;
  double scale = 1;
  bool causal = true;
  int64_t window = 0;  ///< see KeyRange; 0: none
  const AttentionSequence* sequences = nullptr;
  int64_t sequence_count = 0;
  const int32_t* segment_begin = nullptr;  ///< by key, within its sequence; null: one segment
  const int32_t* segment_end = nullptr;
  const uint8_t* keep = nullptr;  ///< by key; null: all
  const uint8_t* live = nullptr;  ///< (sequences, heads), 0 skips the pair; null: all
  QuerySlots slots;

  SLUICE_INLINE KeyRange key_range(const AttentionSequence& s) const {
    return {
        s.queries,
        s.keys,
        causal,
        window,
        segment_begin == nullptr ? nullptr : segment_begin + s.mask_row,
        segment_end == nullptr ? nullptr : segment_end + s.mask_row,
        keep == nullptr ? nullptr : keep + s.mask_row};
  }
  SLUICE_INLINE bool is_live(int64_t sequence, int head) const {
    return live == nullptr || live[sequence * heads + head] != 0;
  }
  /// Number of queries of `sequence` to compute.
  SLUICE_INLINE int64_t query_count(int64_t sequence) const {
    return slots.positions == nullptr ? sequences[sequence].queries
                                      : slots.offsets[sequence + 1] - slots.offsets[sequence];
  }
  /// Index within its sequence of the n-th query to compute.
  SLUICE_INLINE int64_t query(int64_t sequence, int64_t n) const {
    return slots.positions == nullptr ? n : slots.positions[slots.offsets[sequence] + n];
  }
  /// Offset in a query-side operand of the n-th query to compute.
  SLUICE_INLINE int64_t
  query_offset(const HeadRows& rows, int64_t sequence, int head, int64_t n) const {
    if (slots.compact) {
      return rows.offset(0, head, slots.offsets[sequence] - slots.offsets[0] + n);
    }
    const AttentionSequence& s = sequences[sequence];
    return rows.offset(s.batch, head, s.query_row + query(sequence, n));
  }
};

/// out[i] = sum_j softmax_j(scale q[i] . k[j]) v[j]. Writes the rows of the queries to compute in
/// live pairs and no others. A query that sees no key gets 0 and an lse of -infinity.
struct AttentionForward : AttentionProblem {
  HeadRows q{}, k{}, v{}, out{};
  /// log2 of the sum of 2^(scale log2(e) q . k), (B, H, T) in Accumulator<dtype>: base 2 keeps
  /// the backward's P exactly 1 for a query with one key.
  HeadRows lse{};
  HeadRows natural_lse{};  ///< the same in base e; data may be null
  void* scratch = nullptr;
};

/// Gradients of AttentionForward. grad_q follows the rule of `out`; grad_k and grad_v are written
/// for every key of every sequence. Each may be null and then costs nothing.
struct AttentionBackward : AttentionProblem {
  HeadRows q{}, k{}, v{}, out{}, lse{}, grad_out{};
  HeadRows grad_lse{};  ///< of natural_lse; data may be null
  HeadRows grad_q{}, grad_k{}, grad_v{};
  /// Of grad_k and grad_v: dtype, or f32 when several calls add up bf16 gradients.
  DType kv_grad_dtype = DType::f32;
  bool accumulate = false;  ///< add to grad_k and grad_v instead of overwriting them
  void* scratch = nullptr;
};

/// Bytes of `scratch`, 64-byte aligned, for a run on `threads` threads.
size_t attention_forward_scratch_bytes(const AttentionProblem& problem, int threads);
size_t attention_backward_scratch_bytes(const AttentionProblem& problem, int threads);

void attention_forward(CpuContext& context, const AttentionForward& args);
void attention_backward(CpuContext& context, const AttentionBackward& args);

}  // namespace sluice::kernels
