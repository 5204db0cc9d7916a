// Backward pass, in one sweep over the chunks from the last to the first. With den the denominator
// of a query, n = grad_out / den and b = -(grad_out . out) / den:
//
//   grad phi(q_i) = sum_{j <= i} (n_i . v_j + b_i) phi(k_j)
//   grad phi(k_j) = sum_{i >= j} (n_i . v_j + b_i) phi(q_i)
//   grad v_j      = sum_{i >= j} (phi(q_i) . phi(k_j)) n_i
//
// Keys before the chunk enter through the state of the forward pass, here transposed (rows v by
// columns phi(k)) and kept for every chunk of a span; queries behind it through the suffix state
// sum_i phi(q_i) [n_i, b_i]^T.
#include "kernels/linear_attention_task.h"
#include "kernels/simd/dispatch.h"

namespace sluice::kernels::SLUICE_ISA::linear {

template <class T, int Padded>
struct BackwardTask : Task<LinearAttentionBackward, T, Padded, StateRows::v> {
  using Base = Task<LinearAttentionBackward, T, Padded, StateRows::v>;
  using Base::args, Base::chunk, Base::kv_head, Base::s, Base::sequence, Base::shift;
  using Base::Base;
  using typename Base::A;
  using typename Base::V;

  bool wants_q() const { return args.grad_q.data != nullptr; }
  bool wants_kv() const { return args.grad_k.data != nullptr || args.grad_v.data != nullptr; }

  /// phi_q, q_lanes and with them grad, grad_lanes and pull of the queries of `run`.
  void pack_query_grads(int head, QueryRun run, int64_t begin) {
    const Buffers<A>& at = chunk.at;
    const int padded = chunk.padded();
    chunk.pack_queries(args.q, sequence, head, run, begin);
    const int lanes = lanes_for<A>(chunk.count);
    for (int n = 0; n < chunk.count; ++n) {
      A* grad = at.grad + n * padded;
      const int64_t index = run.first + n;
      chunk.prefetch_query(args.grad_out, sequence, head, index);
      chunk.prefetch_query(args.out, sequence, head, index);
      const A normalizer = static_cast<const A*>(
          args.normalizer.data)[args.query_offset(args.normalizer, sequence, head, index)];
      if (normalizer == A(0)) {
        zero_rows(grad, padded);
        at.pull[n] = A(0);
        continue;
      }
      const V factor = V::broadcast(A(1) / normalizer);
      const T* from = static_cast<const T*>(args.grad_out.data) +
                      args.query_offset(args.grad_out, sequence, head, index);
      const T* out =
          static_cast<const T*>(args.out.data) + args.query_offset(args.out, sequence, head, index);
      V product = V::zero();
      chunk.pack_row(
          from, A(0), grad, [&](V x) __attribute__((always_inline)) { return x * factor; });
      for_each_vector<T>(
          args.head_size, [&](int64_t d, int count) __attribute__((always_inline)) {
            product += load(grad + d) * load_count(out + d, count);
          });
      at.pull[n] = -reduce_add(product);
    }
    zero_rows(at.grad + chunk.count * padded, (lanes - chunk.count) * padded);
    for (int n = chunk.count; n < lanes; ++n) at.pull[n] = A(0);
    chunk.to_lanes(at.grad, at.grad_lanes);
  }

  /// One head's queries at the packed keys (when `near`), with the transposed state of the keys
  /// before them (unless null); adds them to grad_phi_k and grad_v, and to the suffix if `extend`.
  void differentiate(
      int head, QueryRun run, int64_t begin, bool near, const A* columns, bool extend) {
    const Buffers<A>& at = chunk.at;
    const Products<A, Padded>& products = chunk.products;
    const int padded = chunk.padded();
    const int64_t square = int64_t{padded} * padded;
    pack_query_grads(head, run, begin);
    if (near) {
      products.scores(
          at.v,
          chunk.keys,
          at.grad_lanes,
          at.position,
          chunk.count,
          at.pull,
          at.grad_scores,
          nullptr);
    }
    if (wants_q()) {
      products.rows_of_lanes(
          chunk.count,
          at.position,
          near ? at.grad_scores : nullptr,
          at.phi_k,
          at.grad_lanes,
          columns,
          [&](auto& tile, int n, int c) __attribute__((always_inline)) {
            tile.for_each([&](int r, int v, V value) __attribute__((always_inline)) {
              const int column = c + v * V::kLanes;
              if (columns != nullptr) {
                value += V::broadcast(at.pull[n + r]) * load(columns + square + column);
              }
              const V phi = load(at.phi_q + (n + r) * padded + column);
              store(
                  at.rows + (n + r) * padded + column,
                  value * slope(phi, V::broadcast(at.shrink[n + r])));
            });
          });
      chunk.write_queries(args.grad_q, sequence, head, run);
    }
    if (!wants_kv()) return;
    if (near) {
      products.scores(
          at.phi_k, chunk.keys, at.q_lanes, at.position, chunk.count, nullptr, at.scores, nullptr);
      products.add_rows_of_keys(
          at.grad_scores, at.phi_q, at.position, chunk.count, chunk.keys, at.grad_phi_k);
      products.add_rows_of_keys(
          at.scores, at.grad, at.position, chunk.count, chunk.keys, at.grad_v);
    }
    if (!extend) return;
    products.add_outer(at.phi_q, at.grad, chunk.count, at.suffix, at.suffix);
    products.add_weighted_rows(
        at.pull, at.phi_q, chunk.count, at.suffix + square, at.suffix + square);
  }

  /// grad_phi_k and grad_v of the packed keys start from the queries behind, or from zero.
  void start_key_grads(bool behind) {
    const Buffers<A>& at = chunk.at;
    const int padded = chunk.padded();
    if (!behind) {
      const int rows = (chunk.keys + kTileRows - 1) / kTileRows * kTileRows;
      zero_rows(at.grad_phi_k, rows * padded);
      zero_rows(at.grad_v, rows * padded);
      return;
    }
    transpose_square(at.suffix, at.suffix_columns);
    const A* sum = at.suffix + int64_t{padded} * padded;
    chunk.products.multiply(at.v, chunk.keys, at.suffix_columns, sum, at.grad_phi_k);
    chunk.products.multiply(at.phi_k, chunk.keys, at.suffix, nullptr, at.grad_v);
  }

  SLUICE_INLINE void transpose_square(const A* from, A* to) const {
    const int padded = chunk.padded();
    for (int i = 0; i < padded; i += V::kLanes) {
      for (int j = 0; j < padded; j += V::kLanes) {
        transpose_block(from + i * padded + j, padded, to + j * padded + i, padded);
      }
    }
  }

  /// Gradients of k and v at keys [begin, begin + chunk.keys).
  template <class G>
  void write_keys(int64_t begin) const {
    const Buffers<A>& at = chunk.at;
    const int padded = chunk.padded();
    const V one = V::broadcast(A(1));
    for (int j = 0; j < chunk.keys; ++j) {
      A* grad_k = at.grad_phi_k + j * padded;
      for (int d = 0; d < padded; d += V::kLanes) {
        store(grad_k + d, load(grad_k + d) * slope(load(at.phi_k + j * padded + d), one));
      }
      const int64_t row = s.key_row + begin + j;
      write_key<G>(grad_k, args.grad_k, row);
      write_key<G>(at.grad_v + j * padded, args.grad_v, row);
    }
  }

  template <class G>
  SLUICE_INLINE void write_key(const A* from, const HeadRows& grad, int64_t row) const {
    if (grad.data == nullptr) return;
    G* to = static_cast<G*>(grad.data) + grad.offset(s.batch, kv_head, row);
    for_each_vector<G>(
        args.head_size, [&](int64_t d, int count) __attribute__((always_inline)) {
          V value = load(from + d);
          if (args.accumulate) value += load_count(to + d, count);
          store_count(to + d, value, count);
        });
  }

  /// In the dtype of the gradients, which differs from T when calls add up bf16 ones.
  SLUICE_INLINE void finish_keys(int64_t begin) const {
    if (args.kv_grad_dtype == args.dtype)
      write_keys<T>(begin);
    else
      write_keys<A>(begin);
  }

  /// No query sees keys [begin, end).
  void write_no_gradient(int64_t begin, int64_t end) {
    const Buffers<A>& at = chunk.at;
    if (!wants_kv() || args.accumulate) return;
    for (int64_t first = begin; first < end; first += kChunk) {
      chunk.keys = static_cast<int>(end - first < kChunk ? end - first : kChunk);
      zero_rows(at.phi_k, int64_t{kChunk} * chunk.padded());
      start_key_grads(false);
      finish_keys(first);
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
      if (wants_kv()) start_key_grads(behind);
      const QueryRun run = queries_between(args, sequence, first - shift, last - shift);
      if (run.first < run.last) {
        const bool extend = first > start;
        if (extend && !behind) this->clear_state(at.suffix);
        this->for_each_head(
            [&](int head) { differentiate(head, run, first, true, columns, extend); });
        behind |= extend;
      }
      if (wants_kv()) finish_keys(first);
    }
  }

  /// The suffix state at `begin` > 0 of the queries at keys [begin, end).
  void make_span_suffix(int64_t begin, int64_t end, A* suffix) {
    const Buffers<A>& at = chunk.at;
    const int64_t square = int64_t{chunk.padded()} * chunk.padded();
    this->clear_state(suffix);
    const int64_t segment = chunk.segment_end(s, begin - 1);
    end = segment < end ? segment : end;
    for (int64_t first = begin; first < end; first += kChunk) {
      const int64_t last = first + kChunk < end ? first + kChunk : end;
      const QueryRun run = queries_between(args, sequence, first - shift, last - shift);
      if (run.first >= run.last) continue;
      this->for_each_head([&](int head) {
        pack_query_grads(head, run, first);
        chunk.products.add_outer(at.phi_q, at.grad, chunk.count, suffix, suffix);
        chunk.products.add_weighted_rows(
            at.pull, at.phi_q, chunk.count, suffix + square, suffix + square);
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
          differentiate(head, run, 0, false, wants_q() ? at.state : nullptr, true);
        });
      }
      for (int64_t begin = first, end; wants_kv() && begin < last; begin = end) {
        end = chunk.chunk_end(s, begin, last);
        this->pack_keys(begin, end);
        start_key_grads(true);
        finish_keys(begin);
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
