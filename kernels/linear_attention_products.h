// The products of one chunk of linear attention on register tiles. Operands are packed: rows of
// `padded` entries, or lanes, where queries lie side by side. Zeros fill what is ragged, so a tile
// is always whole.
#pragma once

#include "kernels/linear_attention_layout.h"
#include "kernels/simd/simd.h"

namespace sluice::kernels::SLUICE_ISA::linear {

using namespace sluice::kernels::linear;

/// Rows of a register tile, by 2 vectors: enough chains to cover the latency of a multiply-add.
inline constexpr int kTileRows = kVectorBytes == 64 ? 8 : 4;
/// Queries come in groups that whole tiles and whole vectors cover.
template <class A>
inline constexpr int kLaneGroup = Vec<A>::kLanes > kTileRows ? Vec<A>::kLanes : kTileRows;

template <class A>
SLUICE_INLINE int lanes_for(int count) {
  return (count + kLaneGroup<A> - 1) / kLaneGroup<A> * kLaneGroup<A>;
}

template <class A, int Vectors>
struct Tile {
  static constexpr int kLanes = Vec<A>::kLanes;
  Vec<A> sum[kTileRows][Vectors];

  template <class Init>
  SLUICE_INLINE void init(Init&& value) {
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) sum[r][v] = value(r, v);
    }
  }
  SLUICE_INLINE void clear() {
    init([](int, int) __attribute__((always_inline)) { return Vec<A>::zero(); });
  }
  SLUICE_INLINE void load_from(const A* from, int stride) {
    init([&](int r, int v)
             __attribute__((always_inline)) { return load(from + r * stride + v * kLanes); });
  }
  template <class Visit>
  SLUICE_INLINE void for_each(Visit&& visit) {
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) visit(r, v, sum[r][v]);
    }
  }
  SLUICE_INLINE void store_to(A* to, int stride) {
    for_each([&](int r, int v, Vec<A> value)
                 __attribute__((always_inline)) { store(to + r * stride + v * kLanes, value); });
  }

  /// sum[r] += weights[r * weight_row + i * weight_step] * rows[i * stride ..] for first <= i <
  /// last, of which there is at least one: tested at the end, or the sums would leave their
  /// registers.
  SLUICE_INLINE void add(
      const A* weights,
      int weight_row,
      int weight_step,
      const A* rows,
      int stride,
      int first,
      int last) {
    int i = first;
    do {
      Vec<A> x[Vectors];
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) x[v] = load(rows + i * stride + v * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kTileRows; ++r) {
        const auto weight = Vec<A>::broadcast(weights[r * weight_row + i * weight_step]);
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) sum[r][v] += weight * x[v];
      }
    } while (++i < last);
  }
};

/// body(tile, first column) for tiles that cover [first, columns), whole vectors.
template <class A, class Body>
SLUICE_INLINE void for_each_column_tile(int first, int columns, Body&& body) {
  constexpr int kLanes = Vec<A>::kLanes;
  int c = first;
  for (; c + 2 * kLanes <= columns; c += 2 * kLanes) {
    Tile<A, 2> tile;
    body(tile, c);
  }
  if (c < columns) {
    Tile<A, 1> tile;
    body(tile, c);
  }
}

/// Padded is the row length where it is known when compiling, 0 where it is not.
template <class A, int Padded>
struct Products {
  using V = Vec<A>;
  static constexpr int kLanes = V::kLanes;
  int width;       // D
  int row_length;  // padded

  SLUICE_INLINE int padded() const { return Padded != 0 ? Padded : row_length; }

  /// out[k][n] = start[n] + rows[k] . lanes[.][n] where query n stands at key k or behind it
  /// (position[n] >= k), else 0; sums[n], unless null, becomes the sum over k. Tiles that no query
  /// sees stay unwritten.
  void scores(
      const A* rows,
      int keys,
      const A* lanes,
      const A* position,
      int count,
      const A* start,
      A* out,
      A* sums) const {
    const int all = lanes_for<A>(count);
    for (int n = 0; sums != nullptr && n < all; n += kLanes) store(sums + n, V::zero());
    int seen_by = 0;
    for (int k = 0; k < keys; k += kTileRows) {
      while (seen_by < count && position[seen_by] < A(k)) ++seen_by;
      if (seen_by == count) return;
      const int first = seen_by / kLaneGroup<A> * kLaneGroup<A>;
      for_each_column_tile<A>(
          first, all, [&](auto& tile, int n) __attribute__((always_inline)) {
            tile.init([&](int, int v) __attribute__((always_inline)) {
              return start != nullptr ? load(start + n + v * kLanes) : V::zero();
            });
            tile.add(rows + k * padded(), padded(), 1, lanes + n, kChunk, 0, width);
            tile.for_each([&](int r, int v, V value) __attribute__((always_inline)) {
              const int lane = n + v * kLanes;
              const auto seen = load(position + lane).raw >= V::broadcast(A(k + r)).raw;
              const V masked{seen ? value.raw : V::zero().raw};
              store(out + (k + r) * kChunk + lane, masked);
              if (sums != nullptr) store(sums + lane, load(sums + lane) + masked);
            });
          });
    }
  }

  /// For each query n: sum over the keys k that it sees of near[k][n] * near_rows[k], plus the sum
  /// over i of far[i][n] * far_rows[i]; finish(tile, n, column) takes it from there. No near keys
  /// when `near` is null, no far rows when `far_rows` is.
  template <class Finish>
  SLUICE_INLINE void rows_of_lanes(
      int count,
      const A* position,
      const A* near,
      const A* near_rows,
      const A* far,
      const A* far_rows,
      Finish&& finish) const {
    for (int n = 0; n < count; n += kTileRows) {
      const int last = (n + kTileRows < count ? n + kTileRows : count) - 1;
      for_each_column_tile<A>(
          0, padded(), [&](auto& tile, int c) __attribute__((always_inline)) {
            tile.clear();
            if (near != nullptr) {
              const int seen = static_cast<int>(position[last]) + 1;
              tile.add(near + n, 1, kChunk, near_rows + c, padded(), 0, seen);
            }
            if (far_rows != nullptr) tile.add(far + n, 1, kChunk, far_rows + c, padded(), 0, width);
            finish(tile, n, c);
          });
    }
  }

  /// out[k] += sum over queries n at or behind key k of weights[k][n] * rows[n].
  void add_rows_of_keys(
      const A* weights, const A* rows, const A* position, int count, int keys, A* out) const {
    int seen_by = 0;
    for (int k = 0; k < keys; k += kTileRows) {
      while (seen_by < count && position[seen_by] < A(k)) ++seen_by;
      if (seen_by == count) return;
      for_each_column_tile<A>(
          0, padded(), [&](auto& tile, int c) __attribute__((always_inline)) {
            tile.load_from(out + k * padded() + c, padded());
            tile.add(weights + k * kChunk, kChunk, 1, rows + c, padded(), seen_by, count);
            tile.store_to(out + k * padded() + c, padded());
          });
    }
  }

  /// out[k] = start + sum_i weights[k][i] * rows[i], i < width; `start` null: 0.
  void multiply(const A* weights, int keys, const A* rows, const A* start, A* out) const {
    for (int k = 0; k < keys; k += kTileRows) {
      for_each_column_tile<A>(
          0, padded(), [&](auto& tile, int c) __attribute__((always_inline)) {
            tile.init([&](int, int v) __attribute__((always_inline)) {
              return start != nullptr ? load(start + c + v * kLanes) : V::zero();
            });
            tile.add(weights + k * padded(), padded(), 1, rows + c, padded(), 0, width);
            tile.store_to(out + k * padded() + c, padded());
          });
    }
  }

  /// to[i] = from[i] + sum over rows j < count of left[j][i] * right[j].
  void add_outer(const A* left, const A* right, int count, const A* from, A* to) const {
    for (int i = 0; i < padded(); i += kTileRows) {
      for_each_column_tile<A>(
          0, padded(), [&](auto& tile, int c) __attribute__((always_inline)) {
            tile.load_from(from + i * padded() + c, padded());
            tile.add(left + i, 1, padded(), right + c, padded(), 0, count);
            tile.store_to(to + i * padded() + c, padded());
          });
    }
  }

  /// to = from + sum over rows j < count of weights[j] * rows[j]; `weights` null: ones.
  void add_weighted_rows(const A* weights, const A* rows, int count, const A* from, A* to) const {
    for (int c = 0; c < padded(); c += kLanes) {
      V sum = load(from + c);
      for (int j = 0; j < count; ++j) {
        const V row = load(rows + j * padded() + c);
        sum += weights != nullptr ? V::broadcast(weights[j]) * row : row;
      }
      store(to + c, sum);
    }
  }
};

}  // namespace sluice::kernels::SLUICE_ISA::linear
