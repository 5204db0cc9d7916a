// What forward and backward share about one tile: which keys its queries see, operands packed to
// dense widened rows and to lanes, masks of tile edges.
#pragma once

#include "kernels/attention_partition.h"
#include "kernels/attention_products.h"
#include "kernels/simd/transpose.h"

namespace sluice::kernels::SLUICE_ISA {

inline constexpr double kLog2E = 1.4426950408889634074;

/// The extremes of the spans of some queries; those that see nothing count for `whole` only.
struct SpanBounds {
  int lowest_first = 0x7fffffff;
  int highest_first = -1;
  int lowest_last = 0x7fffffff;
  int highest_last = 0;

  SLUICE_INLINE void add(int first, int last) {
    if (first >= last) {
      highest_first = 0x7fffffff;  // no key is seen by all
      return;
    }
    lowest_first = first < lowest_first ? first : lowest_first;
    highest_first = first > highest_first ? first : highest_first;
    lowest_last = last < lowest_last ? last : lowest_last;
    highest_last = last > highest_last ? last : highest_last;
  }
};

/// Keys [begin, end) of a block, in whole key groups, that some of a run of queries see; `whole`
/// when all of the run see all of them.
struct BlockSpan {
  int begin = 0;
  int end = 0;
  bool whole = false;

  SLUICE_INLINE bool empty() const { return begin >= end; }
};

SLUICE_INLINE BlockSpan block_span(const SpanBounds& bounds, int64_t block) {
  int64_t begin = bounds.lowest_first - block;
  int64_t end = bounds.highest_last - block;
  begin = begin < 0 ? 0 : begin / kKeyGroup * kKeyGroup;
  end = end > kKeyBlock ? kKeyBlock : (end + kKeyGroup - 1) / kKeyGroup * kKeyGroup;
  if (begin >= end) return {};
  const bool whole = bounds.highest_first <= block + begin && bounds.lowest_last >= block + end;
  return {static_cast<int>(begin), static_cast<int>(end), whole};
}

/// Spans of the queries of a tile, query by query and summed up by row groups and by lane groups
/// of `Lanes` queries. Rows behind `count` see nothing.
template <int Lanes>
struct TileSpans {
  static constexpr int kLaneGroups = kQueryTile / Lanes;
  static_assert(Lanes % kRowGroup == 0);

  int first[kQueryTile];
  int last[kQueryTile];
  SpanBounds rows[kQueryTile / kRowGroup];
  SpanBounds lanes[kLaneGroups];
  SpanBounds tile;

  SLUICE_INLINE TileSpans(const AttentionProblem& problem, const QueryTileWork& work) {
    const KeyRange range = problem.key_range(problem.sequences[work.sequence]);
    for (int n = 0; n < kQueryTile; ++n) {
      KeySpan span;
      if (n < work.count) span = range(problem.query(work.sequence, work.first + n));
      first[n] = static_cast<int>(span.first);
      last[n] = static_cast<int>(span.last);
      rows[n / kRowGroup].add(first[n], last[n]);
      lanes[n / Lanes].add(first[n], last[n]);
      tile.add(first[n], last[n]);
    }
  }
};

/// True when the tile sees so few keys that lane groups of 16 queries pay: they compute fewer
/// masked scores at the edges of windows and diagonals, for more loads per multiply-add.
SLUICE_INLINE bool is_narrow(const AttentionProblem& problem, const QueryTileWork& work) {
  constexpr int64_t kNarrow = 160;
  const KeyRange range = problem.key_range(problem.sequences[work.sequence]);
  const int64_t last = work.first + work.count - 1;
  return range(problem.query(work.sequence, last)).last -
             range(problem.query(work.sequence, work.first)).first <=
         kNarrow;
}

/// Which lanes see which keys of one block: compared as numbers of A, small ones, hence exact.
template <class A, int Vectors>
struct LaneMask {
  Vec<A> first[Vectors];
  Vec<A> last[Vectors];
  const uint8_t* keep;  // of the block's first key, or null
  int64_t keys;         // from the block's first key to the end of the sequence

  SLUICE_INLINE LaneMask(
      const int* first_key, const int* last_key, int64_t block, const KeyRange& range)
      : keep(range.keep == nullptr ? nullptr : range.keep + block), keys(range.keys - block) {
    constexpr int kLanes = Vec<A>::kLanes;
    for (int v = 0; v < Vectors; ++v) {
      A from[kLanes], to[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        const int64_t a = first_key[v * kLanes + i] - block;
        const int64_t b = last_key[v * kLanes + i] - block;
        from[i] = static_cast<A>(a < 0 ? 0 : a > kKeyBlock ? kKeyBlock : a);
        to[i] = static_cast<A>(b < 0 ? 0 : b > kKeyBlock ? kKeyBlock : b);
      }
      first[v] = load(from);
      last[v] = load(to);
    }
  }

  /// `value` in the lanes of vector v that see key j of the block, `otherwise` in the others.
  SLUICE_INLINE Vec<A> select(int j, int v, Vec<A> value, A otherwise) const {
    const auto other = Vec<A>::broadcast(otherwise);
    if (keep != nullptr && j < keys && keep[j] == 0) return other;
    const auto key = Vec<A>::broadcast(static_cast<A>(j)).raw;
    const auto seen = (first[v].raw <= key) & (key < last[v].raw);
    return {seen ? value.raw : other.raw};
  }
};

/// True when a key of [begin, end) of the block is masked.
SLUICE_INLINE bool has_masked_key(const KeyRange& range, int64_t block, int begin, int end) {
  if (range.keep == nullptr) return false;
  for (int64_t j = block + begin; j < block + end && j < range.keys; ++j) {
    if (range.keep[j] == 0) return true;
  }
  return false;
}

/// `width` elements widened, then zeros up to `padded`.
template <class T>
SLUICE_INLINE void pack_row(const T* from, int width, int padded, Accumulator<T>* to) {
  constexpr int kLanes = Vec<Accumulator<T>>::kLanes;
  int d = 0;
  for (; d + kLanes <= width; d += kLanes) store(to + d, load(from + d));
  for (; d < padded; d += kLanes) {
    store(to + d, load_partial(from + d, d < width ? width - d : 0));
  }
}

/// `width` entries of a row of sums to memory, or added to what is there.
template <class Out>
SLUICE_INLINE void store_row(const Accumulator<Out>* from, int width, bool accumulate, Out* to) {
  constexpr int kLanes = Vec<Accumulator<Out>>::kLanes;
  for (int d = 0; d < width; d += kLanes) {
    const int left = width - d;
    auto value = load(from + d);
    if (left >= kLanes) {
      if (accumulate) value += load(to + d);
      store(to + d, value);
    } else {
      if (accumulate) value += load_partial(to + d, left);
      store_partial(to + d, value, left);
    }
  }
}

template <class A>
SLUICE_INLINE void zero_rows(A* to, int64_t rows, int padded) {
  for (int64_t i = 0; i < rows * padded; i += Vec<A>::kLanes) store(to + i, Vec<A>::zero());
}

/// Keys [begin, end) of a block as dense rows. Those behind the sequence and masked ones become
/// zeros: whatever lies there, even NaN, must not reach a sum through a weight of 0.
template <class T>
SLUICE_INLINE void pack_keys(
    const T* first_key,
    int64_t stride,
    const KeyRange& range,
    int64_t block,
    int begin,
    int end,
    int width,
    int padded,
    Accumulator<T>* to) {
  for (int j = begin; j < end; ++j) {
    const int64_t key = block + j;
    const bool seen = key < range.keys && (range.keep == nullptr || range.keep[key] != 0);
    if (seen)
      pack_row(first_key + key * stride, width, padded, to + j * padded);
    else
      zero_rows(to + j * padded, 1, padded);
  }
}

/// to[d * kQueryTile + n] = scale * row_at(n)[d] for n < count, zeros up to `lanes` rows, a
/// multiple of the vector length.
template <class T, class RowAt>
SLUICE_INLINE void pack_lanes(
    RowAt&& row_at, int count, int lanes, int width, Accumulator<T> scale, Accumulator<T>* to) {
  using V = Vec<Accumulator<T>>;
  constexpr int kLanes = V::kLanes;
  const auto factor = V::broadcast(scale);
  for (int n = 0; n < lanes; n += kLanes) {
    for (int d = 0; d < width; d += kLanes) {
      const int left = width - d;
      V rows[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        if (n + i >= count)
          rows[i] = V::zero();
        else if (left >= kLanes)
          rows[i] = load(row_at(n + i) + d);
        else
          rows[i] = load_partial(row_at(n + i) + d, left);
      }
      transpose(rows);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) store(to + (d + i) * kQueryTile + n, rows[i] * factor);
    }
  }
}

}  // namespace sluice::kernels::SLUICE_ISA
