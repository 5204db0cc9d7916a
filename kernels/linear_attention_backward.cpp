// Backward pass: forward over the chunks of a span to keep the state before each, then back from
// the last to the first with the suffix state of the queries behind. Everything is visited once.
#include "kernels/linear_attention_gradients.h"
#include "kernels/simd/dispatch.h"

namespace sluice::kernels::SLUICE_ISA::linear {

template <class T, int Padded>
struct BackwardTask : ChunkGradients<T, Padded> {
  using Base = ChunkGradients<T, Padded>;
  using Base::args, Base::chunk, Base::kv_head, Base::s, Base::sequence, Base::shift;
  using Base::Base, Base::wants_q, Base::wants_kv;
  using typename Base::A;

  /// No query sees keys [begin, end).
  void write_no_gradient(int64_t begin, int64_t end) {
    const Buffers<A>& at = chunk.at;
    if (!wants_kv() || args.accumulate) return;
    for (int64_t first = begin; first < end; first += kChunk) {
      chunk.keys = static_cast<int>(end - first < kChunk ? end - first : kChunk);
      zero_rows(at.phi_k, int64_t{kChunk} * chunk.padded());
      this->start_key_grads(false);
      this->finish_keys(first);
    }
  }

  /// True when a state of earlier keys is kept for the chunk that starts at `first`.
  bool has_state(int64_t begin, int64_t first, bool has_prefix, int64_t needed) const {
    if (!wants_q() || first >= needed) return false;
    return first > begin ? first > chunk.segment_begin(s, first) : has_prefix;
  }

  /// Keys [begin, end) of a causal sequence and the queries that stand at them. `prefix` is the
  /// transposed state of the keys before, null for none; when `behind`, at.suffix holds the state
  /// of the queries behind `end`.
  void run_span(int64_t begin, int64_t end, const A* prefix, bool behind) {
    const Buffers<A>& at = chunk.at;
    const int64_t size = state_size(chunk.padded());
    const int64_t needed = this->keys_seen();
    const bool has_prefix = prefix != nullptr;
    A* next_state = at.states;
    if (has_state(begin, begin, has_prefix, needed)) {
      this->copy_state(prefix, next_state);
      next_state += size;
    }
    for (int64_t first = begin, last; first < end; first = last) {
      last = chunk.chunk_end(s, first, end);
      if (last == end || !has_state(begin, last, has_prefix, needed)) continue;
      this->pack_keys(first, last);
      const A* state = next_state - size;
      if (!has_state(begin, first, has_prefix, needed)) {
        this->clear_state(next_state);
        state = next_state;
      }
      this->absorb(state, next_state);
      next_state += size;
    }
    chunk.ahead = -kChunk;
    for (int64_t last = end, first; last > begin; last = first) {
      const int64_t segment = chunk.segment_begin(s, last - 1);
      const int64_t start = segment > begin ? segment : begin;
      first = start + (last - 1 - start) / kChunk * kChunk;
      if (last == chunk.segment_end(s, last - 1)) behind = false;
      const A* columns = nullptr;
      if (has_state(begin, first, has_prefix, needed)) columns = next_state -= size;
      this->pack_keys(first, last);
      if (wants_kv()) this->start_key_grads(behind);
      const QueryRun run = queries_between(args, sequence, first - shift, last - shift);
      if (run.first < run.last) {
        const bool extend = first > start;
        if (extend && !behind) this->clear_state(at.suffix);
        this->for_each_head(
            [&](int head) { this->differentiate(head, run, first, true, columns, extend); });
        behind |= extend;
      }
      if (wants_kv()) this->finish_keys(first);
    }
  }

  /// The suffix state at `begin` > 0 of the queries at keys [begin, end).
  void make_span_suffix(int64_t begin, int64_t end, A* suffix) {
    this->clear_state(suffix);
    const int64_t segment = chunk.segment_end(s, begin - 1);
    end = segment < end ? segment : end;
    for (int64_t first = begin; first < end; first += kChunk) {
      const int64_t last = first + kChunk < end ? first + kChunk : end;
      const QueryRun run = queries_between(args, sequence, first - shift, last - shift);
      if (run.first >= run.last) continue;
      this->for_each_head([&](int head) {
        this->pack_query_grads(head, run, first);
        this->extend_suffix(suffix);
      });
    }
  }

  /// Without causality all queries of a segment see all its keys.
  void run_not_causal() {
    const Buffers<A>& at = chunk.at;
    int64_t first = 0;
    do {
      const int64_t last = s.keys > 0 ? chunk.segment_end(s, first) : 0;
      if (wants_q()) this->make_state(first, last, at.state);
      this->clear_state(at.suffix);
      const QueryRun all = this->queries_of_segment(first, last);
      for (int64_t n = all.first; n < all.last; n += kChunk) {
        const QueryRun run{n, n + kChunk < all.last ? n + kChunk : all.last};
        this->for_each_head([&](int head) {
          this->differentiate(head, run, 0, false, wants_q() ? at.state : nullptr, true);
        });
      }
      for (int64_t begin = first, end; wants_kv() && begin < last; begin = end) {
        end = chunk.chunk_end(s, begin, last);
        this->pack_keys(begin, end);
        this->start_key_grads(true);
        this->finish_keys(begin);
      }
      first = last;
    } while (first < s.keys);
  }
};

/// Fills `suffixes` with the states of the queries behind all spans but the last.
template <class Run, class A>
void make_suffixes(
    CpuContext& context,
    const LinearAttentionBackward& args,
    const Spans& spans,
    const SpanStates<A>& suffixes,
    A* memory,
    int64_t each) {
  const int64_t pairs = args.sequence_count * args.kv_heads;
  parallel_for(context.threads, pairs * suffixes.boundaries, [&](int64_t i, int thread) {
    const int64_t pair = i / suffixes.boundaries;
    const int64_t span = i % suffixes.boundaries + 1;
    Run run(args, pair, memory + thread * each);
    if (span >= spans.count(run.s) || !run.any_live()) return;
    run.make_span_suffix(spans.begin(span), spans.end(run.s, span), suffixes.at(pair, span - 1));
  });
  if (suffixes.boundaries < 2) return;
  parallel_for(context.threads, pairs, [&](int64_t pair, int thread) {
    Run run(args, pair, memory + thread * each);
    if (!run.any_live()) return;
    for (int64_t span = spans.count(run.s) - 2; span > 0; --span) {
      // The segment before the span reaches behind it: queries there see it, too.
      if (run.chunk.segment_end(run.s, spans.begin(span) - 1) <= spans.end(run.s, span)) continue;
      run.add_state(suffixes.at(pair, span), suffixes.at(pair, span - 1));
    }
  });
}

template <class T, int Padded>
void backward(CpuContext& context, const LinearAttentionBackward& args) {
  using A = Accumulator<T>;
  using Run = BackwardTask<T, Padded>;
  const int padded = padded_width(args.head_size);
  const int64_t pairs = args.sequence_count * args.kv_heads;
  const Spans spans(args, kLongestBackwardSpan);
  const int64_t boundaries = spans.per_sequence - 1;
  const int64_t each = Buffers<A>::backward_size(padded, spans.chunks);
  A* memory = static_cast<A*>(args.scratch);
  A* states = memory + context.threads.size() * each;
  const SpanStates<A> prefixes{states, boundaries, state_size(padded)};
  const SpanStates<A> suffixes{
      states + pairs * boundaries * state_size(padded), boundaries, state_size(padded)};

  if (args.grad_q.data != nullptr) {
    make_prefixes<Run>(context, args, spans, prefixes, memory, each);
  }
  if (args.grad_k.data != nullptr || args.grad_v.data != nullptr) {
    make_suffixes<Run>(context, args, spans, suffixes, memory, each);
  }
  parallel_for(context.threads, pairs * spans.per_sequence, [&](int64_t i, int thread) {
    const int64_t pair = i / spans.per_sequence;
    const int64_t span = i % spans.per_sequence;
    Run run(args, pair, memory + thread * each);
    const AttentionSequence& s = run.s;
    if (span >= spans.count(s)) return;
    const int64_t begin = spans.begin(span);
    const int64_t end = spans.end(s, span);
    if (!run.any_live() || args.query_count(run.sequence) == 0) {
      run.write_no_gradient(begin, end);
      return;
    }
    if (span == 0 && run.wants_q()) run.write_unseeing_queries(args.grad_q, {});
    if (!args.causal) {
      run.run_not_causal();
      return;
    }
    const bool carried = span > 0 && run.chunk.segment_begin(s, begin) < begin;
    const bool behind = span + 1 < spans.count(s) && run.chunk.segment_end(s, end - 1) > end;
    if (behind && run.wants_kv()) run.copy_state(suffixes.at(pair, span), run.chunk.at.suffix);
    run.run_span(begin, end, carried ? prefixes.at(pair, span - 1) : nullptr, behind);
  });
}

}  // namespace sluice::kernels::SLUICE_ISA::linear

namespace sluice::kernels::SLUICE_ISA {

void linear_attention_backward(CpuContext& context, const LinearAttentionBackward& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    // f64 is for truth: one instantiation will do.
    const int padded = linear::padded_width(args.head_size);
    if constexpr (sizeof(T) < 8) {
      if (padded == 32) return linear::backward<T, 32>(context, args);
      if (padded == 64) return linear::backward<T, 64>(context, args);
    }
    linear::backward<T, 0>(context, args);
  });
}

}  // namespace sluice::kernels::SLUICE_ISA

#if defined(SLUICE_ISA_IS_BASELINE)
namespace sluice::kernels {

size_t linear_attention_backward_scratch_bytes(const AttentionProblem& problem, int threads) {
  const int padded = linear::padded_width(problem.head_size);
  const linear::Spans spans(problem, linear::kLongestBackwardSpan);
  const int64_t pairs = problem.sequence_count * problem.kv_heads;
  const int64_t elements = threads * linear::Buffers<float>::backward_size(padded, spans.chunks) +
                           2 * pairs * (spans.per_sequence - 1) * linear::state_size(padded);
  return size_t(elements) * (problem.dtype == DType::f64 ? sizeof(double) : sizeof(float));
}

}  // namespace sluice::kernels
#endif

SLUICE_DISPATCH(linear_attention_backward, LinearAttentionBackward)
