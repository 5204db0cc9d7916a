// One tile of the backward pass of softmax attention: five products in one pass (Dao et al. 2022,
// arXiv:2205.14135, appendix B). For a tile of queries and a block of keys P = 2^(S - lse) and
// P (dP - delta) are made once and feed all three gradients.
#pragma once

#include <type_traits>

#include "kernels/attention_tile.h"
#include "kernels/simd/exp2.h"

namespace sluice::kernels::SLUICE_ISA {

// Sums of grad_k and grad_v of one key head, (keys, padded) each.
template <class A>
struct KeySums {
  A* keys;
  A* values;
};

// One query tile in progress. `scale` is folded into the lanes of grad_out and into delta, so that
// score_grads are gradients of the unscaled q . k.
template <class A>
struct BackwardTile {
  int width;
  int padded;
  A* query_lanes;   // (D, kQueryTile), scaled to base-2 scores
  A* grad_lanes;    // (D, kQueryTile), grad_out scaled
  A* query_rows;    // (kQueryTile, padded)
  A* grad_rows;     // (kQueryTile, padded), grad_out
  A* keys;          // (kKeyBlock, padded)
  A* values;        // (kKeyBlock, padded)
  A* grad_queries;  // (kQueryTile, padded); before that `out` in lanes
  A* weights;       // (kKeyBlock, kQueryTile): P
  A* score_grads;   // (kKeyBlock, kQueryTile): P (dP - delta)
  alignas(64) A lse[kQueryTile];
  alignas(64) A delta[kQueryTile];  // sum_d out grad_out, less the gradient of lse

  SLUICE_INLINE BackwardTile(int head_size, A* scratch)
      : width(head_size), padded(padded_width(head_size)) {
    const int tile = padded * kQueryTile;
    query_lanes = scratch;
    grad_lanes = query_lanes + tile;
    query_rows = grad_lanes + tile;
    grad_rows = query_rows + tile;
    keys = grad_rows + tile;
    values = keys + tile;
    grad_queries = values + tile;
    weights = grad_queries + tile;
    score_grads = weights + kKeyBlock * kQueryTile;
  }
};

// Packs the tile's rows and computes delta in lanes: summed over d in the order of dP, so that a
// query with a single key gets a score gradient of exactly 0. Query n sees keys [first[n],
// last[n]).
template <class T>
SLUICE_INLINE void load_tile(
    const AttentionBackward& args,
    const QueryTileWork& work,
    const int* first,
    const int* last,
    int lanes,
    BackwardTile<Accumulator<T>>& tile) {
  using A = Accumulator<T>;
  using V = Vec<A>;
  const auto row_of = [&](const HeadRows& rows) {
    return [&](int n) {
      return static_cast<const T*>(rows.data) +
             args.query_offset(rows, work.sequence, work.head, work.first + n);
    };
  };
  const auto scale = static_cast<A>(args.scale);
  const auto base2_scale = static_cast<A>(args.scale * kLog2E);
  pack_lanes<T>(row_of(args.q), work.count, lanes, tile.width, base2_scale, tile.query_lanes);
  pack_lanes<T>(row_of(args.grad_out), work.count, lanes, tile.width, scale, tile.grad_lanes);
  pack_lanes<T>(row_of(args.out), work.count, lanes, tile.width, A(1), tile.grad_queries);
  for (int n = 0; n < work.count; ++n) {
    const int64_t row = n * tile.padded;
    // A query that sees nothing may hold anything, even NaN, which must not reach the sums of the
    // keys through a weight of 0.
    if (first[n] >= last[n]) {
      zero_rows(tile.query_rows + row, 1, tile.padded);
      zero_rows(tile.grad_rows + row, 1, tile.padded);
      continue;
    }
    pack_row(row_of(args.q)(n), tile.width, tile.padded, tile.query_rows + row);
    pack_row(row_of(args.grad_out)(n), tile.width, tile.padded, tile.grad_rows + row);
  }
  for (int n = 0; n < lanes; n += V::kLanes) {
    V delta = V::zero();
    for (int d = 0; d < tile.width; ++d) {
      const int at = d * kQueryTile + n;
      delta += load(tile.grad_queries + at) * load(tile.grad_lanes + at);
    }
    store(tile.delta + n, delta);
  }
  for (int n = 0; n < lanes; ++n) {
    if (n >= work.count) {
      tile.lse[n] = 0;
      continue;
    }
    tile.lse[n] = static_cast<const A*>(
        args.lse.data)[args.query_offset(args.lse, work.sequence, work.head, work.first + n)];
    if (args.grad_lse.data != nullptr) {
      tile.delta[n] -= scale * static_cast<const A*>(args.grad_lse.data)[args.query_offset(
                                   args.grad_lse, work.sequence, work.head, work.first + n)];
    }
  }
  zero_rows(tile.grad_queries, lanes, tile.padded);
}

// weights and score_grads of the queries in lanes row.. against keys [span.begin, span.end).
template <class A, int Vectors, bool Masked>
SLUICE_INLINE void differentiate_scores(
    BackwardTile<A>& tile, int row, BlockSpan span, const LaneMask<A, Vectors>* mask) {
  using V = Vec<A>;
  constexpr int kLanes = V::kLanes;
  constexpr int kKeys = kDotKeys<A>;
  for (int j = span.begin; j < span.end; j += kKeys) {
    V dots[kKeys][Vectors];
    dot_keys<A, kKeys, Vectors, kQueryTile>(
        tile.keys + j * tile.padded, tile.padded, tile.query_lanes + row, tile.width, dots);
#pragma GCC unroll 8
    for (int r = 0; r < kKeys; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        const V lse = load(tile.lse + row + v * kLanes);
        V weight = exp2_nonpositive(dots[r][v] - lse);
        if constexpr (Masked) weight = mask->select(j + r, v, weight, A(0));
        store(tile.weights + (j + r) * kQueryTile + row + v * kLanes, weight);
      }
    }
    dot_keys<A, kKeys, Vectors, kQueryTile>(
        tile.values + j * tile.padded, tile.padded, tile.grad_lanes + row, tile.width, dots);
#pragma GCC unroll 8
    for (int r = 0; r < kKeys; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        const int at = (j + r) * kQueryTile + row + v * kLanes;
        const V delta = load(tile.delta + row + v * kLanes);
        V grad = load(tile.weights + at) * (dots[r][v] - delta);
        if constexpr (Masked) grad = mask->select(j + r, v, grad, A(0));
        store(tile.score_grads + at, grad);
      }
    }
  }
}

// sums[row + r][..] += sum_c weights[r * RowStep + c * Step] rows[c][..] for `Rows` rows.
template <class A, int Rows, int RowStep, int Step>
SLUICE_INLINE void add_rows(const A* weights, const A* rows, int padded, int count, A* sums) {
  constexpr int kLanes = Vec<A>::kLanes;
  const auto add = [&]<int kVectors>(int d, std::integral_constant<int, kVectors>) {
    Vec<A> tile[Rows][kVectors];
    weighted_sum<A, Rows, kVectors, RowStep, Step>(weights, rows + d, padded, count, tile);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        A* at = sums + r * padded + d + v * kLanes;
        store(at, load(at) + tile[r][v]);
      }
    }
  };
  int d = 0;
  for (; d + 2 * kLanes <= padded; d += 2 * kLanes) add(d, std::integral_constant<int, 2>());
  if (d < padded) add(d, std::integral_constant<int, 1>());
}

template <class T, int Vectors>
__attribute__((noinline)) void differentiate_tile(
    const AttentionBackward& args,
    const QueryTileWork& work,
    Accumulator<T>* scratch,
    KeySums<Accumulator<T>> sums) {
  using A = Accumulator<T>;
  constexpr int kLanes = Vectors * Vec<A>::kLanes;
  const TileSpans<kLanes> spans(args, work);
  const AttentionSequence& sequence = args.sequences[work.sequence];
  const KeyRange range = args.key_range(sequence);
  BackwardTile<A> tile(args.head_size, scratch);
  const int rows = (work.count + kLanes - 1) / kLanes * kLanes;
  load_tile<T>(args, work, spans.first, spans.last, rows, tile);
  const int padded = tile.padded;
  const int kv_head = work.head / (args.heads / args.kv_heads);
  const auto* keys =
      static_cast<const T*>(args.k.data) + args.k.offset(sequence.batch, kv_head, sequence.key_row);
  const auto* values =
      static_cast<const T*>(args.v.data) + args.v.offset(sequence.batch, kv_head, sequence.key_row);

  for (int64_t block = spans.tile.lowest_first / kKeyBlock * kKeyBlock;
       block < spans.tile.highest_last;
       block += kKeyBlock) {
    const BlockSpan all = block_span(spans.tile, block);
    const auto pack = [&](const T* from, int64_t stride, A* to) {
      pack_keys(from, stride, range, block, all.begin, all.end, tile.width, padded, to);
    };
    pack(keys, args.k.strides.token, tile.keys);
    pack(values, args.v.strides.token, tile.values);
    BlockSpan seen[spans.kLaneGroups];
    for (int row = 0; row < rows; row += kLanes) {
      const BlockSpan span = block_span(spans.lanes[row / kLanes], block);
      seen[row / kLanes] = span;
      if (span.empty()) continue;
      if (span.whole && !has_masked_key(range, block, span.begin, span.end)) {
        differentiate_scores<A, Vectors, false>(tile, row, span, nullptr);
      } else {
        const LaneMask<A, Vectors> mask(spans.first + row, spans.last + row, block, range);
        differentiate_scores<A, Vectors, true>(tile, row, span, &mask);
      }
    }
    if (args.grad_q.data != nullptr) {
      for (int row = 0; row < rows; row += kRowGroup) {
        const BlockSpan span = block_span(spans.rows[row / kRowGroup], block);
        if (span.empty()) continue;
        for (int r = row; r < row + kRowGroup; r += kSumRows) {
          add_rows<A, kSumRows, 1, kQueryTile>(
              tile.score_grads + span.begin * kQueryTile + r,
              tile.keys + span.begin * padded,
              padded,
              span.end - span.begin,
              tile.grad_queries + r * padded);
        }
      }
    }
    if (sums.keys == nullptr && sums.values == nullptr) continue;
    for (int key = all.begin; key < all.end; key += kKeyGroup) {
      // Runs of lane groups that have weights for these keys.
      for (int row = 0; row < rows;) {
        const auto has_keys = [&](int at) {
          const BlockSpan& span = seen[at / kLanes];
          return span.begin <= key && key < span.end;
        };
        const int begin = row;
        while (row < rows && has_keys(row)) row += kLanes;
        if (row == begin) {
          row += kLanes;
          continue;
        }
        const int count = (row < work.count ? row : work.count) - begin;
        for (int j = key; j < key + kKeyGroup; j += kSumRows) {
          const int at = j * kQueryTile + begin;
          const int64_t to = (block + j) * padded;
          if (sums.values != nullptr) {
            add_rows<A, kSumRows, kQueryTile, 1>(
                tile.weights + at,
                tile.grad_rows + begin * padded,
                padded,
                count,
                sums.values + to);
          }
          if (sums.keys != nullptr) {
            add_rows<A, kSumRows, kQueryTile, 1>(
                tile.score_grads + at,
                tile.query_rows + begin * padded,
                padded,
                count,
                sums.keys + to);
          }
        }
      }
    }
  }
  if (args.grad_q.data == nullptr) return;
  for (int n = 0; n < work.count; ++n) {
    store_row(
        tile.grad_queries + n * padded,
        tile.width,
        false,
        static_cast<T*>(args.grad_q.data) +
            args.query_offset(args.grad_q, work.sequence, work.head, work.first + n));
  }
}

}  // namespace sluice::kernels::SLUICE_ISA
