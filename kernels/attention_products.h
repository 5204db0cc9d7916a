// The two small matrix products that attention is made of, on register tiles. Every entry is one
// chain of multiply-adds in rising order of the summed index, whatever the tile it falls into:
// the bits of a row do not depend on its neighbours.
#pragma once

#include "kernels/simd/simd.h"

namespace sluice::kernels::SLUICE_ISA {

/// Vectors of query lanes and keys per register tile of dot_keys: rows * lanes accumulators that
/// cover the latency of a multiply-add and leave room for the operands (32 or 16 registers).
template <class A>
inline constexpr int kLaneVectors = Vec<A>::kLanes == 2 ? 4 : 2;
template <class A>
inline constexpr int kDotKeys = kVectorBytes == 64    ? 8
                                : Vec<A>::kLanes == 2 ? 2
                                                      : 4;
/// Rows per register tile of weighted_sum, by 2 vectors.
inline constexpr int kSumRows = kVectorBytes == 64 ? 8 : 4;

/// width >= 1:
///   out[r][v] = sum_d keys[r * stride + d] * lanes[d * lane_stride + v * kLanes + ..]
template <class A, int Keys, int Vectors, int LaneStride>
SLUICE_INLINE void dot_keys(
    const A* keys, int stride, const A* lanes, int width, Vec<A> (&out)[Keys][Vectors]) {
#pragma GCC unroll 8
  for (int r = 0; r < Keys; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) out[r][v] = Vec<A>::zero();
  }
  // Tested at the end: a path around the loop would keep the accumulators in memory.
  int d = 0;
  do {
    Vec<A> x[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) x[v] = load(lanes + d * LaneStride + v * Vec<A>::kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < Keys; ++r) {
      const auto key = Vec<A>::broadcast(keys[r * stride + d]);
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) out[r][v] += key * x[v];
    }
  } while (++d < width);
}

/// count >= 1:
///   out[r][v] = sum_c weights[r * RowStep + c * Step] * rows[c * stride + v * kLanes + ..]
///
/// Starts from zero: adding the sum of a block to a total keeps more digits than one long chain.
template <class A, int Rows, int Vectors, int RowStep, int Step>
SLUICE_INLINE void weighted_sum(
    const A* weights, const A* rows, int stride, int count, Vec<A> (&out)[Rows][Vectors]) {
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) out[r][v] = Vec<A>::zero();
  }
  int c = 0;
  do {
    Vec<A> x[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) x[v] = load(rows + c * stride + v * Vec<A>::kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const auto weight = Vec<A>::broadcast(weights[r * RowStep + c * Step]);
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) out[r][v] += weight * x[v];
    }
  } while (++c < count);
}

}  // namespace sluice::kernels::SLUICE_ISA
