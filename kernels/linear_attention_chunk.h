// One chunk of keys and the queries that stand at them, packed: phi applied, masked tokens and
// ragged ends zero, queries as rows and as lanes. Then what forward and backward both do with it.
#pragma once

#include "kernels/linear_attention_products.h"
#include "kernels/simd/exp2.h"
#include "kernels/simd/rows.h"
#include "kernels/simd/transpose.h"

namespace sluice::kernels::SLUICE_ISA::linear {

/// elu(x) + 1: x + 1 above 0, e^x below. NaN passes through the first summand.
template <class A>
SLUICE_INLINE Vec<A> feature(Vec<A> x) {
  const Vec<A> zero = Vec<A>::zero();
  const Vec<A> above{x.raw < zero.raw ? zero.raw : x.raw};
  const Vec<A> below{x.raw < zero.raw ? x.raw : zero.raw};
  return above + exp2_nonpositive(below * Vec<A>::broadcast(A(1.4426950408889634)));
}

/// d phi / dx = 1 above 0, e^x = phi below: the lesser of phi and 1, of which `lift` is a factor.
template <class A>
SLUICE_INLINE Vec<A> slope(Vec<A> lifted_phi, Vec<A> lift) {
  return min(lifted_phi, lift);
}

template <class A>
SLUICE_INLINE void zero_rows(A* to, int64_t count) {
  for (int64_t i = 0; i < count; i += Vec<A>::kLanes) store(to + i, Vec<A>::zero());
}

/// to[i][j] = from[j][i] for a square of one vector's lanes.
template <class A>
SLUICE_INLINE void transpose_block(const A* from, int from_stride, A* to, int to_stride) {
  Vec<A> rows[Vec<A>::kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < Vec<A>::kLanes; ++i) rows[i] = load(from + i * from_stride);
  transpose(rows);
#pragma GCC unroll 16
  for (int i = 0; i < Vec<A>::kLanes; ++i) store(to + i * to_stride, rows[i]);
}

/// Queries [first, last) to compute, as indices n of AttentionProblem.
struct QueryRun {
  int64_t first = 0;
  int64_t last = 0;
};

/// Those of `sequence` whose index within it is in [begin, end).
SLUICE_INLINE QueryRun
queries_between(const AttentionProblem& problem, int64_t sequence, int64_t begin, int64_t end) {
  const int64_t queries = problem.sequences[sequence].queries;
  begin = begin < 0 ? 0 : begin;
  end = end > queries ? queries : end;
  if (begin >= end) return {};
  if (problem.slots.positions == nullptr) return {begin, end};
  const int32_t* list = problem.slots.positions + problem.slots.offsets[sequence];
  const int64_t count = problem.query_count(sequence);
  auto first_at = [&](int64_t position) __attribute__((always_inline)) {
    int64_t low = 0, high = count;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (list[middle] < position)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  };
  return {first_at(begin), first_at(end)};
}

template <class T, int Padded>
struct Chunk {
  using A = Accumulator<T>;
  using V = Vec<A>;
  static constexpr int kLanes = V::kLanes;

  const AttentionProblem& problem;
  Products<A, Padded> products;
  Buffers<A> at;
  int count = 0;       // packed queries
  int keys = 0;        // packed keys
  int ahead = kChunk;  // tokens from a row to the one to fetch early: backward goes backwards

  SLUICE_INLINE Chunk(const AttentionProblem& p, A* memory)
      : problem(p),
        products{p.head_size, padded_width(p.head_size)},
        at(memory, padded_width(p.head_size)) {}

  SLUICE_INLINE int padded() const { return products.padded(); }

  SLUICE_INLINE bool masked(const AttentionSequence& s, int64_t position) const {
    return problem.keep != nullptr && position >= 0 && problem.keep[s.mask_row + position] == 0;
  }

  /// End of the chunk that starts at key `begin`: within its segment and before `end`.
  SLUICE_INLINE int64_t chunk_end(const AttentionSequence& s, int64_t begin, int64_t end) const {
    if (problem.segment_end != nullptr && problem.segment_end[s.mask_row + begin] < end) {
      end = problem.segment_end[s.mask_row + begin];
    }
    return begin + kChunk < end ? begin + kChunk : end;
  }
  SLUICE_INLINE int64_t segment_begin(const AttentionSequence& s, int64_t key) const {
    return problem.segment_begin == nullptr ? 0 : problem.segment_begin[s.mask_row + key];
  }
  SLUICE_INLINE int64_t segment_end(const AttentionSequence& s, int64_t key) const {
    return problem.segment_end == nullptr ? s.keys : problem.segment_end[s.mask_row + key];
  }

  /// One row of `problem.head_size` entries, through `map`, zeros up to padded().
  template <class Map>
  SLUICE_INLINE void pack_row(const T* from, A fill, A* to, Map&& map) const {
    const int width = problem.head_size;
    int d = 0;
    for (; d + kLanes <= width; d += kLanes) store(to + d, map(load(from + d)));
    for (; d < padded(); d += kLanes) {
      store(to + d, d < width ? map(load_partial(from + d, width - d, fill)) : V::zero());
    }
  }
  SLUICE_INLINE void pack_features(const T* from, A* to) const {
    // The feature of -infinity is 0.
    pack_row(
        from, -A(__builtin_inf()), to, [](V x) __attribute__((always_inline)) {
          return feature(x);
        });
  }
  SLUICE_INLINE void pack_values(const T* from, A* to) const {
    pack_row(
        from, A(0), to, [](V x) __attribute__((always_inline)) { return x; });
  }

  /// Rows of one head lie too far apart for the hardware to foresee: without this a third of the
  /// forward pass waited for them (D = 32, operands in L3).
  SLUICE_INLINE void prefetch(const HeadRows& rows, int64_t offset) const {
    const T* row = static_cast<const T*>(rows.data) + offset;
    for (int d = 0; d < problem.head_size; d += 64 / int(sizeof(T))) __builtin_prefetch(row + d);
  }
  SLUICE_INLINE void prefetch_query(
      const HeadRows& rows, int64_t sequence, int head, int64_t n) const {
    const bool known = problem.slots.positions == nullptr && n + ahead >= 0;
    if (!known || n + ahead >= problem.sequences[sequence].queries) return;
    prefetch(rows, problem.query_offset(rows, sequence, head, n + ahead));
  }

  /// phi_k and v of keys [begin, end). Masked keys become zeros: whatever lies there, even NaN,
  /// must not reach a sum through a weight of 0.
  void pack_keys(
      const HeadRows& k,
      const HeadRows& v,
      const AttentionSequence& s,
      int kv_head,
      int64_t begin,
      int64_t end) {
    keys = static_cast<int>(end - begin);
    for (int j = 0; j < keys; ++j) {
      A* phi_row = at.phi_k + j * padded();
      A* v_row = at.v + j * padded();
      const int64_t later = begin + j + ahead;
      if (later >= 0 && later < s.keys) {
        prefetch(k, k.offset(s.batch, kv_head, s.key_row + later));
        prefetch(v, v.offset(s.batch, kv_head, s.key_row + later));
      }
      if (masked(s, begin + j)) {
        zero_rows(phi_row, padded());
        zero_rows(v_row, padded());
        continue;
      }
      const int64_t row = s.key_row + begin + j;
      pack_features(static_cast<const T*>(k.data) + k.offset(s.batch, kv_head, row), phi_row);
      pack_values(static_cast<const T*>(v.data) + v.offset(s.batch, kv_head, row), v_row);
    }
    const int ragged = (kTileRows - keys % kTileRows) % kTileRows * padded();
    zero_rows(at.phi_k + keys * padded(), ragged);
    zero_rows(at.v + keys * padded(), ragged);
  }

  /// phi_q, q_lanes, position and lift of at most kChunk queries; positions count from key
  /// `begin`.
  void pack_queries(const HeadRows& q, int64_t sequence, int head, QueryRun run, int64_t begin) {
    const AttentionSequence& s = problem.sequences[sequence];
    count = static_cast<int>(run.last - run.first);
    const int lanes = lanes_for<A>(count);
    for (int n = 0; n < count; ++n) {
      const int64_t position = problem.query(sequence, run.first + n) + s.keys - s.queries;
      at.position[n] = static_cast<A>(position - begin);
      A* row = at.phi_q + n * padded();
      prefetch_query(q, sequence, head, run.first + n);
      if (masked(s, position)) {
        zero_rows(row, padded());
        continue;
      }
      const int64_t from = problem.query_offset(q, sequence, head, run.first + n);
      pack_features(static_cast<const T*>(q.data) + from, row);
    }
    for (int n = count; n < lanes; ++n) at.position[n] = A(-1);
    zero_rows(at.phi_q + count * padded(), (lanes - count) * padded());
    to_lanes(at.phi_q, at.q_lanes);
    lift_small_queries();
  }

  /// Rows of the packed queries as lanes: to[d * kChunk + n] = from[n * padded + d].
  SLUICE_INLINE void to_lanes(const A* from, A* to) const {
    for (int n = 0; n < lanes_for<A>(count); n += kLanes) {
      for (int d = 0; d < padded(); d += kLanes) {
        transpose_block(from + n * padded() + d, padded(), to + d * kChunk + n, kChunk);
      }
    }
  }

  /// A factor of phi(q) cancels between numerator and denominator. Where all entries of phi(q) are
  /// small their products would underflow, so they are divided by the largest; lift = that factor.
  SLUICE_INLINE void lift_small_queries() {
    constexpr A kSmall = A(1e-3);
    const V one = V::broadcast(A(1));
    for (int n = 0; n < lanes_for<A>(count); n += kLanes) {
      V largest = V::zero();
      for (int d = 0; d < problem.head_size; ++d) {
        largest = max(largest, load(at.q_lanes + d * kChunk + n));
      }
      store(at.lift + n, one);
      const V small{largest.raw < V::broadcast(kSmall).raw ? one.raw : V::zero().raw};
      if (reduce_max(small) == A(0)) continue;
      for (int i = n; i < n + kLanes && i < count; ++i) {
        const A largest_of_query = largest[i - n];
        if (!(largest_of_query < kSmall) || largest_of_query == A(0)) continue;
        at.lift[i] = A(1) / largest_of_query;
        for (int d = 0; d < padded(); ++d) {
          at.phi_q[i * padded() + d] *= at.lift[i];
          at.q_lanes[d * kChunk + i] *= at.lift[i];
        }
      }
    }
  }

  /// `from` as a row of G at `to`.
  template <class G>
  SLUICE_INLINE void write_row(const A* from, G* to) const {
    for_each_vector<G>(
        problem.head_size, [&](int64_t d, int lanes) __attribute__((always_inline)) {
          store_count(to + d, load(from + d), lanes);
        });
  }

  /// The packed rows at.rows to the queries of `run`.
  void write_queries(const HeadRows& to, int64_t sequence, int head, QueryRun run) const {
    for (int n = 0; n < count; ++n) {
      const int64_t offset = problem.query_offset(to, sequence, head, run.first + n);
      write_row(at.rows + n * padded(), static_cast<T*>(to.data) + offset);
    }
  }

  /// Zeros to the rows of queries that stand before the first key.
  void write_unseeing_queries(
      const HeadRows& to, const HeadRows& sums, int64_t sequence, int head) const {
    const AttentionSequence& s = problem.sequences[sequence];
    const QueryRun run = queries_between(problem, sequence, 0, s.queries - s.keys);
    for (int64_t n = run.first; n < run.last; ++n) {
      T* row = static_cast<T*>(to.data) + problem.query_offset(to, sequence, head, n);
      for (int d = 0; d < problem.head_size; ++d) row[d] = T(0);
      if (sums.data == nullptr) continue;
      static_cast<A*>(sums.data)[problem.query_offset(sums, sequence, head, n)] = A(0);
    }
  }
};

}  // namespace sluice::kernels::SLUICE_ISA::linear
