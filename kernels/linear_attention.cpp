// Forward pass. A task is one (sequence, key head), or one span of it, with all query heads that
// share the key head: keys are packed and the state is advanced once for all of them.
#include "kernels/linear_attention.h"

#include "kernels/linear_attention_task.h"
#include "kernels/simd/dispatch.h"

namespace sluice::kernels::SLUICE_ISA::linear {

template <class T, int Padded>
struct ForwardTask : Task<LinearAttentionForward, T, Padded, StateRows::phi_k> {
  using Base = Task<LinearAttentionForward, T, Padded, StateRows::phi_k>;
  using Base::args, Base::chunk, Base::kv_head, Base::s, Base::sequence, Base::shift;
  using Base::Base;
  using typename Base::A;
  using typename Base::V;

  /// Output of the queries of `run` from the packed keys (when `near`) and the state before them
  /// (unless null).
  void attend(int head, QueryRun run, int64_t begin, bool near, const A* state) {
    const Buffers<A>& at = chunk.at;
    const int padded = chunk.padded();
    chunk.pack_queries(args.q, sequence, head, run, begin);
    chunk.products.scores(
        at.phi_k,
        near ? chunk.keys : 0,
        at.q_lanes,
        at.position,
        chunk.count,
        nullptr,
        at.scores,
        at.normalizer);
    for (int n = 0; n < chunk.count; n += V::kLanes) {
      V sum = load(at.normalizer + n);
      for (int d = 0; state != nullptr && d < args.head_size; ++d) {
        const A phi_sum = state[int64_t{padded} * padded + d];
        sum += V::broadcast(phi_sum) * load(at.q_lanes + d * kChunk + n);
      }
      const auto nothing = sum.raw < V::broadcast(kLeastNormalizer<A>).raw;
      const V inverse = V::broadcast(A(1)) / sum;
      store(at.normalizer + n, V{nothing ? V::zero().raw : sum.raw});
      store(at.inverse + n, V{nothing ? V::zero().raw : inverse.raw});
    }
    chunk.products.rows_of_lanes(
        chunk.count,
        at.position,
        near ? at.scores : nullptr,
        at.v,
        at.q_lanes,
        state,
        [&](auto& tile, int n, int c) __attribute__((always_inline)) {
          tile.for_each([&](int r, int v, V value) __attribute__((always_inline)) {
            const V scale = V::broadcast(at.inverse[n + r]);
            store(at.rows + (n + r) * padded + c + v * V::kLanes, value * scale);
          });
        });
    chunk.write_queries(args.out, sequence, head, run);
    if (args.normalizer.data == nullptr) return;
    for (int n = 0; n < chunk.count; ++n) {
      const int64_t to = args.query_offset(args.normalizer, sequence, head, run.first + n);
      static_cast<A*>(args.normalizer.data)[to] = at.normalizer[n];
    }
  }

  /// Keys [begin, end) of a causal sequence and the queries that stand at them. chunk.at.state
  /// holds the state before them unless `empty`, and what follows from it afterwards.
  void run_span(int64_t begin, int64_t end, bool empty) {
    A* state = chunk.at.state;
    const int64_t needed = args.state != nullptr ? s.keys : this->keys_seen();
    for (int64_t first = begin, last; first < end && first < needed; first = last) {
      last = chunk.chunk_end(s, first, end);
      empty |= first > 0 && chunk.segment_begin(s, first) == first;
      this->pack_keys(first, last);
      const QueryRun run = queries_between(args, sequence, first - shift, last - shift);
      if (run.first < run.last) {
        this->for_each_head(
            [&](int head) { attend(head, run, first, true, empty ? nullptr : state); });
      }
      if (args.state == nullptr && last >= needed) return;
      if (empty) this->clear_state(state);
      this->absorb(state, state);
      empty = false;
    }
  }

  /// Without causality all queries see all keys of their segment, or of the sequence.
  void run_not_causal() {
    if (!this->any_live() || args.query_count(sequence) == 0) return;
    int64_t first = 0;
    do {
      const int64_t last = s.keys > 0 ? chunk.segment_end(s, first) : 0;
      this->make_state(first, last, chunk.at.state);
      const QueryRun all = this->queries_of_segment(first, last);
      for (int64_t n = all.first; n < all.last; n += kChunk) {
        const QueryRun run{n, n + kChunk < all.last ? n + kChunk : all.last};
        this->for_each_head([&](int head) { attend(head, run, 0, false, chunk.at.state); });
      }
      first = last;
    } while (first < s.keys);
  }

  /// The state of the caller, rows of D + 1, to and from the padded square and the sum behind it.
  void load_state() {
    this->clear_state(chunk.at.state);
    visit_state([](A& padded, A& dense) { padded = dense; });
  }
  void save_state() {
    visit_state([](A& padded, A& dense) { dense = padded; });
  }
  template <class Visit>
  SLUICE_INLINE void visit_state(Visit&& visit) {
    const int64_t width = args.head_size;
    const int64_t padded = chunk.padded();
    const int64_t pair = sequence * args.kv_heads + kv_head;
    A* dense = static_cast<A*>(args.state) + pair * width * (width + 1);
    for (int64_t d = 0; d < width; ++d, dense += width + 1) {
      for (int64_t e = 0; e < width; ++e) visit(chunk.at.state[d * padded + e], dense[e]);
      visit(chunk.at.state[padded * padded + d], dense[width]);
    }
  }
};

template <class T, int Padded>
void forward(CpuContext& context, const LinearAttentionForward& args) {
  using A = Accumulator<T>;
  using Run = ForwardTask<T, Padded>;
  const int padded = padded_width(args.head_size);
  const int64_t pairs = args.sequence_count * args.kv_heads;
  const Spans spans = forward_spans(args);
  A* memory = static_cast<A*>(args.scratch);
  const int64_t each = Buffers<A>::forward_size(padded);
  const SpanStates<A> prefixes{
      memory + context.threads.size() * each, spans.per_sequence - 1, state_size(padded)};

  make_prefixes<Run>(context, args, spans, prefixes, memory, each);
  parallel_for(context.threads, pairs * spans.per_sequence, [&](int64_t i, int thread) {
    const int64_t pair = i / spans.per_sequence;
    const int64_t span = i % spans.per_sequence;
    Run run(args, pair, memory + thread * each);
    if (span == 0) run.write_unseeing_queries(args.out, args.normalizer);
    if (!args.causal) {
      run.run_not_causal();
      return;
    }
    if (span >= spans.count(run.s)) return;
    if (args.state != nullptr)
      run.load_state();
    else if (span > 0)
      run.copy_state(prefixes.at(pair, span - 1), run.chunk.at.state);
    const bool empty = span == 0 && args.state == nullptr;
    run.run_span(spans.begin(span), spans.end(run.s, span), empty);
    if (args.state != nullptr) run.save_state();
  });
}

}  // namespace sluice::kernels::SLUICE_ISA::linear

namespace sluice::kernels::SLUICE_ISA {

void linear_attention_forward(CpuContext& context, const LinearAttentionForward& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    // f64 is for truth: one instantiation will do.
    const int padded = linear::padded_width(args.head_size);
    if constexpr (sizeof(T) < 8) {
      if (padded == 32) return linear::forward<T, 32>(context, args);
      if (padded == 64) return linear::forward<T, 64>(context, args);
    }
    linear::forward<T, 0>(context, args);
  });
}

}  // namespace sluice::kernels::SLUICE_ISA

#if defined(SLUICE_ISA_IS_BASELINE)
namespace sluice::kernels {

size_t linear_attention_forward_scratch_bytes(const LinearAttentionForward& args, int threads) {
  const int padded = linear::padded_width(args.head_size);
  const int64_t slots =
      args.sequence_count * args.kv_heads * (linear::forward_spans(args).per_sequence - 1);
  const int64_t elements =
      threads * linear::Buffers<float>::forward_size(padded) + slots * linear::state_size(padded);
  return size_t(elements) * (args.dtype == DType::f64 ? sizeof(double) : sizeof(float));
}

}  // namespace sluice::kernels
#endif

SLUICE_DISPATCH(linear_attention_forward, LinearAttentionForward)
