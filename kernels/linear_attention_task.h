// What a forward and a backward task share: its (sequence, key head), its live query heads, states
// of runs of keys, and the scan that turns the states of spans into what precedes each span.
#pragma once

#include "kernels/linear_attention.h"
#include "kernels/linear_attention_chunk.h"

namespace sluice::kernels::SLUICE_ISA::linear {

/// Which operand of phi(k) [v, 1]^T gives the rows of a state.
enum class StateRows { phi_k, v };

template <class Args, class T, int Padded, StateRows Rows>
struct Task {
  using A = Accumulator<T>;
  using V = Vec<A>;

  const Args& args;
  int64_t sequence;
  int kv_head;
  const AttentionSequence& s;
  int64_t shift;  // position of query 0
  Chunk<T, Padded> chunk;

  SLUICE_INLINE Task(const Args& problem, int64_t pair, A* memory)
      : args(problem),
        sequence(pair / problem.kv_heads),
        kv_head(static_cast<int>(pair % problem.kv_heads)),
        s(problem.sequences[sequence]),
        shift(s.keys - s.queries),
        chunk(problem, memory) {}

  /// body(head) for the live query heads of this key head.
  template <class Body>
  SLUICE_INLINE void for_each_head(Body&& body) const {
    const int group = args.heads / args.kv_heads;
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      if (args.is_live(sequence, head)) body(head);
    }
  }
  SLUICE_INLINE bool any_live() const {
    bool any = false;
    for_each_head([&](int) { any = true; });
    return any;
  }

  SLUICE_INLINE void pack_keys(int64_t begin, int64_t end) {
    chunk.pack_keys(args.k, args.v, s, kv_head, begin, end);
  }

  /// One past the last key that a query to compute sees.
  SLUICE_INLINE int64_t keys_seen() const {
    const int64_t count = args.query_count(sequence);
    if (!any_live() || count == 0) return 0;
    return args.causal ? args.query(sequence, count - 1) + shift + 1 : s.keys;
  }

  /// to = from + the packed keys: the square sum of phi(k) v^T, or its transpose, then the sum of
  /// phi(k).
  SLUICE_INLINE void absorb(const A* from, A* to) const {
    const Buffers<A>& at = chunk.at;
    const A* rows = Rows == StateRows::phi_k ? at.phi_k : at.v;
    const A* columns = Rows == StateRows::phi_k ? at.v : at.phi_k;
    const int64_t square = int64_t{chunk.padded()} * chunk.padded();
    chunk.products.add_outer(rows, columns, chunk.keys, from, to);
    chunk.products.add_weighted_rows(nullptr, at.phi_k, chunk.keys, from + square, to + square);
  }

  /// The state that keys [begin, end) make.
  void make_state(int64_t begin, int64_t end, A* state) {
    clear_state(state);
    for (int64_t first = begin, last; first < end; first = last) {
      last = chunk.chunk_end(s, first, end);
      pack_keys(first, last);
      absorb(state, state);
    }
  }

  /// The state at `end` that keys [begin, end) make: keys of earlier segments do not count.
  void make_span_state(int64_t begin, int64_t end, A* state) {
    const int64_t segment = chunk.segment_begin(s, end);
    make_state(segment > begin ? segment : begin, end, state);
  }

  SLUICE_INLINE void clear_state(A* state) const { zero_rows(state, state_size(chunk.padded())); }
  SLUICE_INLINE void copy_state(const A* from, A* to) const {
    for (int64_t i = 0; i < state_size(chunk.padded()); i += V::kLanes)
      store(to + i, load(from + i));
  }

  SLUICE_INLINE void add_state(const A* from, A* to) const {
    for (int64_t i = 0; i < state_size(chunk.padded()); i += V::kLanes) {
      store(to + i, load(to + i) + load(from + i));
    }
  }

  /// Zeros for the queries that stand before the first key, unless they see all keys.
  SLUICE_INLINE void write_unseeing_queries(const HeadRows& to, const HeadRows& sums) const {
    if (!args.causal && args.segment_begin == nullptr) return;
    for_each_head([&](int head) { chunk.write_unseeing_queries(to, sums, sequence, head); });
  }

  /// Queries that see the keys of the segment [first, last) when there is no causality.
  SLUICE_INLINE QueryRun queries_of_segment(int64_t first, int64_t last) const {
    if (args.segment_begin == nullptr) return queries_between(args, sequence, 0, s.queries);
    return queries_between(args, sequence, first - shift, last - shift);
  }
};

/// One state per (pair, boundary between two spans).
template <class A>
struct SpanStates {
  A* memory;
  int64_t boundaries;  // per pair
  int64_t size;

  SLUICE_INLINE A* at(int64_t pair, int64_t boundary) const {
    return memory + (pair * boundaries + boundary) * size;
  }
};

/// Fills `prefixes` with the states before all spans but the first. Does nothing for one span.
template <class Run, class Args, class A>
void make_prefixes(
    CpuContext& context,
    const Args& args,
    const Spans& spans,
    const SpanStates<A>& prefixes,
    A* memory,
    int64_t each) {
  const int64_t pairs = args.sequence_count * args.kv_heads;
  parallel_for(context.threads, pairs * prefixes.boundaries, [&](int64_t i, int thread) {
    const int64_t pair = i / prefixes.boundaries;
    const int64_t span = i % prefixes.boundaries;
    Run run(args, pair, memory + thread * each);
    if (span + 1 >= spans.count(run.s) || !run.any_live()) return;
    run.make_span_state(spans.begin(span), spans.end(run.s, span), prefixes.at(pair, span));
  });
  if (prefixes.boundaries < 2) return;
  parallel_for(context.threads, pairs, [&](int64_t pair, int thread) {
    Run run(args, pair, memory + thread * each);
    if (!run.any_live()) return;
    for (int64_t span = 1; span + 1 < spans.count(run.s); ++span) {
      // The segment at the end of the span began before it: what precedes the span still counts.
      if (run.chunk.segment_begin(run.s, spans.end(run.s, span)) > spans.begin(span)) continue;
      run.add_state(prefixes.at(pair, span - 1), prefixes.at(pair, span));
    }
  });
}

}  // namespace sluice::kernels::SLUICE_ISA::linear
