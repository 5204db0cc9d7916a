// Packing for the GEMM: copies of the operands in the order in which the innermost kernel reads
// them, in the accumulator type. Included by gemm.cpp only.
#pragma once

#include "kernels/simd/transpose.h"

namespace sluice::kernels::SLUICE_ISA {

SLUICE_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/// The first `count` elements, zeros behind; count may be anything.
template <class T>
SLUICE_INLINE Vec<Accumulator<T>> load_up_to(const T* from, int64_t count) {
  constexpr int kLanes = Vec<Accumulator<T>>::kLanes;
  return count >= kLanes ? load(from) : load_partial(from, count > 0 ? int(count) : 0);
}

template <class T>
SLUICE_INLINE void store_up_to(T* to, Vec<Accumulator<T>> value, int64_t count) {
  constexpr int kLanes = Vec<Accumulator<T>>::kLanes;
  if (count >= kLanes)
    store(to, value);
  else
    store_partial(to, value, int(count));
}

/// Panels of b, each (depth, Columns) without gaps, columns beyond `columns` zero. `b` points at
/// row 0 and column 0 of the block; as stored its rows run along n.
template <int Columns, class T>
void pack_rows_of_b(
    const T* b, int64_t stride, int64_t depth, int64_t columns, Accumulator<T>* to) {
  using V = Vec<Accumulator<T>>;
  for (int64_t first = 0; first < columns; first += Columns) {
    for (int64_t k = 0; k < depth; ++k) {
#pragma GCC unroll 8
      for (int c = 0; c < Columns; c += V::kLanes) {
        const int64_t left = columns - first - c;
        store(to + c, left > 0 ? load_up_to(b + k * stride + first + c, left) : V::zero());
      }
      to += Columns;
    }
  }
}

/// The same panels from a b whose rows as stored run along k, transposed in registers.
template <int Columns, class T>
void pack_columns_of_b(
    const T* b, int64_t stride, int64_t depth, int64_t columns, Accumulator<T>* to) {
  using V = Vec<Accumulator<T>>;
  constexpr int kLanes = V::kLanes;
  for (int64_t first = 0; first < columns; first += Columns, to += depth * Columns) {
    for (int c = 0; c < Columns; c += kLanes) {
      const T* corner = b + (first + c) * stride;
      const int64_t present = columns - first - c;
      for (int64_t k = 0; k < depth; k += kLanes) {
        const int64_t left = depth - k;
        V rows[kLanes];
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
          rows[i] = i < present ? load_up_to(corner + i * stride + k, left) : V::zero();
        }
        transpose(rows);
        const int64_t stored = smaller(left, kLanes);
        for (int64_t i = 0; i < stored; ++i) store(to + (k + i) * Columns + c, rows[i]);
      }
    }
  }
}

/// Tiles of a transposed a, each (depth, Rows) without gaps, rows beyond `rows` zero. As stored its
/// rows run along m; `a` points at k 0 and row 0 of the strip.
template <int Rows, class T>
void pack_transposed_a(
    const T* a, int64_t stride, int64_t rows, int64_t depth, Accumulator<T>* to) {
  const int64_t whole = rows / Rows * Rows;
  for (int64_t k = 0; k < depth; ++k) {
    const T* from = a + k * stride;
    Accumulator<T>* line = to + k * Rows;
    for (int64_t r = 0; r < whole; r += Rows) {
      for (int i = 0; i < Rows; ++i) line[r * depth + i] = from[r + i];
    }
    if (whole == rows) continue;
    for (int i = 0; i < Rows; ++i) {
      line[whole * depth + i] = whole + i < rows ? Accumulator<T>(from[whole + i]) : 0;
    }
  }
}

/// One tile of a as it is, (Rows, depth) without gaps, rows beyond `rows` zero: for bf16 and for
/// the last, ragged tile.
template <int Rows, class T>
void pack_rows_of_a(const T* a, int64_t stride, int64_t rows, int64_t depth, Accumulator<T>* to) {
  using V = Vec<Accumulator<T>>;
  for (int r = 0; r < Rows; ++r, to += depth) {
    for (int64_t k = 0; k < depth; k += V::kLanes) {
      const int64_t left = depth - k;
      store_up_to(to + k, r < rows ? load_up_to(a + r * stride + k, left) : V::zero(), left);
    }
  }
}

}  // namespace sluice::kernels::SLUICE_ISA
