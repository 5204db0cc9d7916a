// The innermost kernel of the GEMM, which keeps one tile of c in registers, and what happens to a
// finished tile. Included by gemm.cpp only.
#pragma once

#include "kernels/gemm.h"
#include "kernels/gemm_pack.h"
#include "kernels/simd/activation.h"
#include "kernels/simd/rows.h"

namespace sluice::kernels::SLUICE_ISA {

/// tile (Rows, Vectors * kLanes) = a * b over `depth`, added to what the tile holds when `resume`.
/// a[r, k] is at a[k * Rows + r] if PackedA, else at a[r * a_stride + k].
template <int Rows, int Vectors, bool PackedA, class S>
void multiply_tile(
    int64_t depth,
    const S* a,
    int64_t a_stride,
    const S* b,
    int64_t b_stride,
    S* tile,
    bool resume) {
  using V = Vec<S>;
  V sum[Rows][Vectors];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      sum[r][v] = resume ? load(tile + (r * Vectors + v) * V::kLanes) : V::zero();
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    V column[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) column[v] = load(b + v * V::kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const V row = V::broadcast(PackedA ? a[r] : a[r * a_stride]);
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sum[r][v] += row * column[v];
    }
    a += PackedA ? Rows : 1;
    b += b_stride;
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) store(tile + (r * Vectors + v) * V::kLanes, sum[r][v]);
  }
}

/// The epilogue: bias, activation, old value, rounding. Writes rows x columns of c at (row,
/// column).
template <int Columns, class T>
void finish_tile(
    const GemmArgs& args,
    const Accumulator<T>* tile,
    int64_t batch,
    int64_t row,
    int64_t column,
    int64_t rows,
    int64_t columns) {
  using V = Vec<Accumulator<T>>;
  const T* bias = static_cast<const T*>(args.bias);
  const int64_t corner = batch * args.c_batch_stride + row * args.c_row_stride + column;
  for (int64_t r = 0; r < rows; ++r, tile += Columns) {
    const int64_t line = corner + r * args.c_row_stride;
    T* c = static_cast<T*>(args.c) + line;
    for_each_vector<T>(
        columns, [&](int64_t i, int count) __attribute__((always_inline)) {
          V value = load(tile + i);
          if (bias != nullptr) value += load_count(bias + column + i, count);
          if (args.pre_activation != nullptr) {
            store_count(static_cast<T*>(args.pre_activation) + line + i, value, count);
          }
          value = activate(args.activation, value);
          if (args.accumulate) value += load_count(c + i, count);
          store_count(c + i, value, count);
        });
  }
}

}  // namespace sluice::kernels::SLUICE_ISA
