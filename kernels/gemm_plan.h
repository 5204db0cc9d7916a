// How a GEMM is cut into chunks of work: pure integer arithmetic on shapes, so that neither the
// chunks nor the order of sums know the thread count.
#pragma once

#include "kernels/gemm.h"
#include "kernels/simd/dispatch.h"

namespace sluice::kernels {

/// The block of c that the innermost kernel keeps in registers.
struct GemmTile {
  int rows;
  int columns;
};

/// 8 x 2 registers with 32 of them (AVX-512), 6 x 2 with 16 and fused multiply-add (AVX2), 4 x 2
/// with 16 and none.
constexpr GemmTile gemm_tile(SimdLevel level, DType dtype) {
  const int halves = dtype == DType::f64 ? 1 : 2;
  switch (level) {
    case SimdLevel::avx512:
      return {8, 16 * halves};
    case SimdLevel::avx2:
      return {6, 8 * halves};
    case SimdLevel::baseline:
      return {4, 4 * halves};
  }
  return {4, 4};
}

/// Rows of a that one panel of b is multiplied with while both stay in the L2 cache.
inline constexpr int kGemmStripRows = 64;

/// Up to this many rows of a, b is read where it lies if its rows run along n: packing would cost
/// more than it saves.
inline constexpr int64_t kGemmDirectRows = 32;

/// A chunk is one block of c (block_rows, block_columns) of one batch, summed over one of `splits`
/// ranges of k. With several splits each writes a partial block to scratch and a second pass adds
/// them in order.
struct GemmPlan {
  GemmTile tile;
  bool dot;               // m < 8 and transposed b: dot products, no blocks
  int64_t depth;          // k range that is packed and summed at a time
  int64_t block_rows;     // multiple of tile.rows
  int64_t block_columns;  // multiple of tile.columns
  int64_t row_blocks;
  int64_t column_blocks;
  int64_t blocks;  // batch * row_blocks * column_blocks
  int64_t splits;
  int64_t depths_per_split;
  bool pack_b;
  // Scratch of one thread, then the partial blocks; offsets in bytes.
  size_t a_offset;
  size_t tiles_offset;
  size_t thread_bytes;
  size_t block_bytes;  // one block of c in the accumulator type, tile after tile
};

GemmPlan gemm_plan(const GemmArgs& args, SimdLevel level);

}  // namespace sluice::kernels
