// Sizes that the kernels of linear attention and their scratch agree on: chunks, padded rows, and
// the spans that a long sequence is cut into.
#pragma once

#include "kernels/linear_attention.h"

namespace sluice::kernels::linear {

/// Tokens of a chunk: inside it queries meet keys directly, between chunks through the state. Work
/// within a chunk grows with its length, work on the state does not; 16 lanes make 32 the least
/// that keeps register tiles full (64 was 1.2 times slower).
inline constexpr int kChunk = 32;

/// Below this many (sequence, key head) pairs a sequence is cut into spans that threads share: a
/// first pass makes the state of each span, a scan adds them up. It costs a third more work.
inline constexpr int64_t kFewPairs = 8;
inline constexpr int64_t kShortestSpan = 512;
/// The backward pass keeps the states before each chunk of a span: this bounds them.
inline constexpr int64_t kLongestBackwardSpan = 2048;

/// A denominator below this counts as 0: grad_out / denominator would overflow.
template <class A>
inline constexpr A kLeastNormalizer = sizeof(A) == 8 ? A(1e-290) : A(1e-30);

/// Length of a packed row of D entries: whole vectors and whole tiles on every instruction set.
SLUICE_INLINE int padded_width(int width) { return (width + 15) / 16 * 16; }

/// Entries of a state: a padded square, then the sum of phi(k).
SLUICE_INLINE int64_t state_size(int padded) { return int64_t{padded} * (padded + 1); }

/// Spans of `tokens` keys from the start of each sequence. Depends on shapes only, never on
/// threads.
struct Spans {
  int64_t tokens = INT64_MAX - kChunk;
  int64_t per_sequence = 1;  ///< of the longest sequence
  int64_t chunks = 0;        ///< of a span; 0 without causality, which needs no order

  Spans() = default;
  SLUICE_INLINE Spans(const AttentionProblem& problem, int64_t longest_span) {
    if (!problem.causal) return;
    int64_t longest = 1;
    for (int64_t s = 0; s < problem.sequence_count; ++s) {
      const int64_t keys = problem.sequences[s].keys;
      longest = keys > longest ? keys : longest;
    }
    tokens = longest;
    const int64_t pairs = problem.sequence_count * problem.kv_heads;
    if (pairs < kFewPairs) {
      tokens = (longest * pairs + kFewPairs - 1) / kFewPairs;
      tokens = tokens < kShortestSpan ? kShortestSpan : tokens;
    }
    tokens = tokens < longest_span ? tokens : longest_span;
    tokens = (tokens + kChunk - 1) / kChunk * kChunk;
    per_sequence = (longest + tokens - 1) / tokens;
    chunks = tokens / kChunk;
  }

  SLUICE_INLINE int64_t count(const AttentionSequence& s) const {
    return s.keys <= tokens ? 1 : (s.keys + tokens - 1) / tokens;
  }
  SLUICE_INLINE int64_t begin(int64_t span) const { return span * tokens; }
  SLUICE_INLINE int64_t end(const AttentionSequence& s, int64_t span) const {
    const int64_t last = (span + 1) * tokens;
    return last < s.keys ? last : s.keys;
  }
};

/// A caller's state is carried on in order, so its sequences stay whole.
SLUICE_INLINE Spans forward_spans(const LinearAttentionForward& args) {
  return args.state != nullptr ? Spans() : Spans(args, INT64_MAX - kChunk);
}

/// Packed operands of one chunk, carved out of a thread's scratch. Rows are `padded` long, lanes
/// and scores kChunk.
template <class A>
struct Buffers {
  A *phi_k, *v;             // (chunk, padded)
  A *phi_q, *rows;          // (chunk, padded); rows: results on their way out
  A* q_lanes;               // (padded, chunk): phi_q transposed
  A* scores;                // (chunk, chunk): by key, then query
  A *position, *lift;       // (chunk): place in the chunk, factor in phi_q
  A *normalizer, *inverse;  // (chunk)
  A* state;                 // state_size
  // Backward only:
  A *grad, *grad_lanes;        // grad_out / normalizer: (chunk, padded), (padded, chunk)
  A* pull;                     // (chunk): -(grad_out . out) / normalizer
  A* grad_scores;              // (chunk, chunk)
  A *grad_phi_k, *grad_v;      // (chunk, padded)
  A *suffix, *suffix_columns;  // state of the queries behind; its square transposed
  A* states;                   // one per chunk of a span

  SLUICE_INLINE Buffers(A* memory, int padded) {
    A* next = memory;
    const int64_t matrix = int64_t{kChunk} * padded;
    phi_k = take(next, matrix);
    v = take(next, matrix);
    phi_q = take(next, matrix);
    rows = take(next, matrix);
    q_lanes = take(next, matrix);
    scores = take(next, kChunk * kChunk);
    position = take(next, kChunk);
    lift = take(next, kChunk);
    normalizer = take(next, kChunk);
    inverse = take(next, kChunk);
    state = take(next, state_size(padded));
    grad = take(next, matrix);
    grad_lanes = take(next, matrix);
    pull = take(next, kChunk);
    grad_scores = take(next, kChunk * kChunk);
    grad_phi_k = take(next, matrix);
    grad_v = take(next, matrix);
    suffix = take(next, state_size(padded));
    suffix_columns = take(next, int64_t{padded} * padded);
    states = next;
  }

  static SLUICE_INLINE int64_t forward_size(int padded) {
    return 5 * int64_t{kChunk} * padded + kChunk * (kChunk + 4) + state_size(padded);
  }
  static SLUICE_INLINE int64_t backward_size(int padded, int64_t chunks) {
    return forward_size(padded) + 4 * int64_t{kChunk} * padded + kChunk * (kChunk + 1) +
           int64_t{padded} * padded + (1 + chunks) * state_size(padded);
  }

 private:
  static SLUICE_INLINE A* take(A*& next, int64_t count) {
    A* taken = next;
    next += count;
    return taken;
  }
};

}  // namespace sluice::kernels::linear
