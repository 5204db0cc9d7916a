// Square transposition in registers.
#pragma once

#include <utility>

#include "kernels/simd/simd.h"

namespace sluice::kernels::SLUICE_ISA {

/// a0 b0 a1 b1 .. from the lower (First = 0) or upper (First = lanes / 2) halves of a and b.
template <int First, class T, int... I>
SLUICE_INLINE Vec<T> zip(Vec<T> a, Vec<T> b, std::integer_sequence<int, I...>) {
  return {__builtin_shufflevector(
      a.raw, b.raw, (First + I / 2 + (I % 2 != 0 ? Vec<T>::kLanes : 0))...)};
}

/// rows[i][j] becomes rows[j][i]. Each pass zips row i with row i + lanes / 2; log2(lanes) passes
/// rotate the row bits of an element's address into its lane bits.
template <class T>
SLUICE_INLINE void transpose(Vec<T> (&rows)[Vec<T>::kLanes]) {
  constexpr int kLanes = Vec<T>::kLanes;
  constexpr auto kAll = std::make_integer_sequence<int, kLanes>();
#pragma GCC unroll 4
  for (int pass = 1; pass < kLanes; pass *= 2) {
    Vec<T> next[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i) {
      next[2 * i] = zip<0>(rows[i], rows[i + kLanes / 2], kAll);
      next[2 * i + 1] = zip<kLanes / 2>(rows[i], rows[i + kLanes / 2], kAll);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) rows[i] = next[i];
  }
}

}  // namespace sluice::kernels::SLUICE_ISA
