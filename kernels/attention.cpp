// Softmax attention, forward: tiles of 64 queries against blocks of 64 keys with a running maximum
// and sum (Milakov, Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135).
//
// Queries lie in vector lanes while scores are made, so maximum and sum need no shuffles; the
// output tile is row-major and takes values as vectors. Blocks start at multiples of 64 keys and
// every sum runs key by key, so for finite values a row's bits depend on its own keys only: not on
// the tile it is put into, and listed queries or a wide enough window give exactly the full result.
#include "kernels/attention.h"

#include "kernels/attention_tile.h"
#include "kernels/simd/dispatch.h"
#include "kernels/simd/exp2.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

template <class A>
inline constexpr A kLowest = sizeof(A) == 8 ? static_cast<A>(-__DBL_MAX__) : -__FLT_MAX__;
template <class A>
inline constexpr A kInfinity = static_cast<A>(__builtin_inff());

constexpr double kLn2 = 0.69314718055994530942;

SLUICE_INLINE float log2_of(float x) { return __builtin_log2f(x); }
SLUICE_INLINE double log2_of(double x) { return __builtin_log2(x); }

// One tile in progress. Rows of `out` are weighted sums relative to 2^row_max.
template <class A>
struct ForwardTile {
  int width;
  int padded;
  A* queries;  // (D, kQueryTile), scaled to base-2 scores
  A* keys;     // (kKeyBlock, padded)
  A* values;   // (kKeyBlock, padded)
  A* out;      // (kQueryTile, padded)
  A* weights;  // (kKeyBlock, kQueryTile): scores, then 2^(score - row_max)
  alignas(64) A row_max[kQueryTile];
  alignas(64) A row_sum[kQueryTile];
  alignas(64) A rescale[kQueryTile];  // of the sums so far, when row_max rises

  SLUICE_INLINE ForwardTile(int head_size, A* scratch)
      : width(head_size), padded(padded_width(head_size)) {
    queries = scratch;
    keys = queries + padded * kQueryTile;
    values = keys + kKeyBlock * padded;
    out = values + kKeyBlock * padded;
    weights = out + kQueryTile * padded;
  }
};

// Scores and weights of the queries in lanes row.. against keys [span.begin, span.end).
template <class A, int Vectors, bool Masked>
SLUICE_INLINE void weigh_keys(
    ForwardTile<A>& tile, int row, BlockSpan span, const LaneMask<A, Vectors>* mask) {
  using V = Vec<A>;
  constexpr int kLanes = V::kLanes;
  constexpr int kKeys = kDotKeys<A>;
  V highest[Vectors];
  for (int v = 0; v < Vectors; ++v) highest[v] = load(tile.row_max + row + v * kLanes);
  for (int j = span.begin; j < span.end; j += kKeys) {
    V scores[kKeys][Vectors];
    dot_keys<A, kKeys, Vectors, kQueryTile>(
        tile.keys + j * tile.padded, tile.padded, tile.queries + row, tile.width, scores);
#pragma GCC unroll 8
    for (int r = 0; r < kKeys; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        V score = scores[r][v];
        if constexpr (Masked) score = mask->select(j + r, v, score, -kInfinity<A>);
        highest[v] = max(score, highest[v]);  // in this order a NaN score leaves the maximum alone
        store(tile.weights + (j + r) * kQueryTile + row + v * kLanes, score);
      }
    }
  }
  V sum[Vectors];
  for (int v = 0; v < Vectors; ++v) sum[v] = V::zero();
  for (int j = span.begin; j < span.end; ++j) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      A* at = tile.weights + j * kQueryTile + row + v * kLanes;
      const V weight = exp2_nonpositive(load(at) - highest[v]);
      sum[v] += weight;
      store(at, weight);
    }
  }
  for (int v = 0; v < Vectors; ++v) {
    const int at = row + v * kLanes;
    const V rescale = exp2_nonpositive(load(tile.row_max + at) - highest[v]);
    store(tile.rescale + at, rescale);
    store(tile.row_sum + at, load(tile.row_sum + at) * rescale + sum[v]);
    store(tile.row_max + at, highest[v]);
  }
}

// out rows = out rows * rescale + weights . values, for kSumRows rows and Vectors vectors at d.
template <class A, int Vectors>
SLUICE_INLINE void add_values(ForwardTile<A>& tile, int row, int d, BlockSpan span) {
  constexpr int kLanes = Vec<A>::kLanes;
  Vec<A> sums[kSumRows][Vectors];
  weighted_sum<A, kSumRows, Vectors, 1, kQueryTile>(
      tile.weights + span.begin * kQueryTile + row,
      tile.values + span.begin * tile.padded + d,
      tile.padded,
      span.end - span.begin,
      sums);
#pragma GCC unroll 8
  for (int r = 0; r < kSumRows; ++r) {
    const auto rescale = Vec<A>::broadcast(tile.rescale[row + r]);
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      A* at = tile.out + (row + r) * tile.padded + d + v * kLanes;
      store(at, load(at) * rescale + sums[r][v]);
    }
  }
}

template <class A>
SLUICE_INLINE void add_values(ForwardTile<A>& tile, int row, BlockSpan span) {
  constexpr int kLanes = Vec<A>::kLanes;
  for (int r = row; r < row + kRowGroup; r += kSumRows) {
    int d = 0;
    for (; d + 2 * kLanes <= tile.padded; d += 2 * kLanes) add_values<A, 2>(tile, r, d, span);
    if (d < tile.padded) add_values<A, 1>(tile, r, d, span);
  }
}

// Divides by the sums and stores rows and their log-sum-exp.
template <class T>
SLUICE_INLINE void finish_rows(
    const AttentionForward& args,
    const QueryTileWork& work,
    const ForwardTile<Accumulator<T>>& tile) {
  using A = Accumulator<T>;
  constexpr int kLanes = Vec<A>::kLanes;
  for (int r = 0; r < work.count; ++r) {
    const int64_t n = work.first + r;
    const A sum = tile.row_sum[r];
    const auto inverse = Vec<A>::broadcast(sum == 0 ? A(0) : A(1) / sum);
    const A* from = tile.out + r * tile.padded;
    T* to =
        static_cast<T*>(args.out.data) + args.query_offset(args.out, work.sequence, work.head, n);
    int d = 0;
    for (; d + kLanes <= tile.width; d += kLanes) store(to + d, load(from + d) * inverse);
    if (d < tile.width) store_partial(to + d, load(from + d) * inverse, tile.width - d);
    const A lse = sum == 0 ? -kInfinity<A> : tile.row_max[r] + log2_of(sum);
    static_cast<A*>(args.lse.data)[args.query_offset(args.lse, work.sequence, work.head, n)] = lse;
    if (args.natural_lse.data != nullptr) {
      static_cast<A*>(
          args.natural_lse.data)[args.query_offset(args.natural_lse, work.sequence, work.head, n)] =
          lse * static_cast<A>(kLn2);
    }
  }
}

// A tile in lane groups of Vectors vectors: one vector wastes less at edges, two load less.
template <class T, int Vectors>
__attribute__((noinline)) void attend_tile(
    const AttentionForward& args, const QueryTileWork& work, Accumulator<T>* scratch) {
  using A = Accumulator<T>;
  constexpr int kLanes = Vectors * Vec<A>::kLanes;
  const TileSpans<kLanes> spans(args, work);
  const AttentionSequence& sequence = args.sequences[work.sequence];
  const KeyRange range = args.key_range(sequence);
  ForwardTile<A> tile(args.head_size, scratch);
  const int rows = (work.count + kLanes - 1) / kLanes * kLanes;
  for (int r = 0; r < rows; ++r) {
    tile.row_max[r] = kLowest<A>;
    tile.row_sum[r] = 0;
  }
  zero_rows(tile.out, rows, tile.padded);
  pack_lanes<T>(
      [&](int n) {
        return static_cast<const T*>(args.q.data) +
               args.query_offset(args.q, work.sequence, work.head, work.first + n);
      },
      work.count,
      rows,
      tile.width,
      static_cast<A>(args.scale * kLog2E),
      tile.queries);
  const int kv_head = work.head / (args.heads / args.kv_heads);
  const auto* keys =
      static_cast<const T*>(args.k.data) + args.k.offset(sequence.batch, kv_head, sequence.key_row);
  const auto* values =
      static_cast<const T*>(args.v.data) + args.v.offset(sequence.batch, kv_head, sequence.key_row);

  for (int64_t block = spans.tile.lowest_first / kKeyBlock * kKeyBlock;
       block < spans.tile.highest_last;
       block += kKeyBlock) {
    const BlockSpan all = block_span(spans.tile, block);
    pack_keys(
        keys,
        args.k.strides.token,
        range,
        block,
        all.begin,
        all.end,
        tile.width,
        tile.padded,
        tile.keys);
    pack_keys(
        values,
        args.v.strides.token,
        range,
        block,
        all.begin,
        all.end,
        tile.width,
        tile.padded,
        tile.values);
    for (int row = 0; row < rows; row += kLanes) {
      const BlockSpan span = block_span(spans.lanes[row / kLanes], block);
      if (span.empty()) continue;
      if (span.whole && !has_masked_key(range, block, span.begin, span.end)) {
        weigh_keys<A, Vectors, false>(tile, row, span, nullptr);
      } else {
        const LaneMask<A, Vectors> mask(spans.first + row, spans.last + row, block, range);
        weigh_keys<A, Vectors, true>(tile, row, span, &mask);
      }
      for (int r = row; r < row + kLanes; r += kRowGroup) {
        const BlockSpan part = block_span(spans.rows[r / kRowGroup], block);
        if (!part.empty()) add_values(tile, r, part);
      }
    }
  }
  finish_rows<T>(args, work, tile);
}

}  // namespace

void attention_forward(CpuContext& context, const AttentionForward& args) {
  const ForwardScratch layout = forward_scratch(args, context.threads.size());
  auto* scratch = static_cast<char*>(args.scratch);
  auto* tile_begin = reinterpret_cast<int64_t*>(scratch);
  count_tiles(args, tile_begin);
  const int64_t chunks = tile_begin[args.sequence_count] * args.heads;
  dispatch_floating(args.dtype, [&]<class T>() {
    using A = Accumulator<T>;
    parallel_for(context.threads, chunks, [&](int64_t chunk, int thread) {
      const QueryTileWork work = forward_work(args, tile_begin, chunk);
      if (!args.is_live(work.sequence, work.head)) return;
      auto* buffer = reinterpret_cast<A*>(
          scratch + layout.thread_offset + static_cast<size_t>(thread) * layout.thread_bytes);
      if constexpr (Vec<A>::kLanes == 16) {
        if (is_narrow(args, work)) return attend_tile<T, 1>(args, work, buffer);
      }
      attend_tile<T, kLaneVectors<A>>(args, work, buffer);
    });
  });
}

}  // namespace sluice::kernels::SLUICE_ISA

SLUICE_DISPATCH(attention_forward, AttentionForward)
