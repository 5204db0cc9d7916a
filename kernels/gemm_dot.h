// GEMM for a few rows of a and a b stored along k: one dot product per element, both operands read
// where they lie. Included by gemm.cpp only.
#pragma once

#include "kernels/gemm_tile.h"

namespace sluice::kernels::SLUICE_ISA {

/// Columns summed at a time, so that their sums hide each other's latency.
inline constexpr int kDotColumns = 4;

/// Columns [first, last) of c = a * b.
template <class T>
void dot_columns(const GemmArgs& args, int64_t batch, int64_t first, int64_t last) {
  using S = Accumulator<T>;
  using V = Vec<S>;
  const T* a = static_cast<const T*>(args.a.data) + batch * args.a.batch_stride;
  const T* b = static_cast<const T*>(args.b.data) + batch * args.b.batch_stride;
  for (int64_t n = first; n < last; n += kDotColumns) {
    const int64_t columns = smaller(kDotColumns, last - n);
    for (int64_t m = 0; m < args.m; ++m) {
      const T* x = a + m * args.a.row_stride;
      const T* line[kDotColumns];
      V sum[kDotColumns];
      for (int g = 0; g < kDotColumns; ++g) {
        line[g] = b + (n + (g < columns ? g : 0)) * args.b.row_stride;
        sum[g] = V::zero();
      }
      int64_t k = 0;
      for (; k + V::kLanes <= args.k; k += V::kLanes) {
        const V row = load(x + k);
        for (int g = 0; g < kDotColumns; ++g) sum[g] += row * load(line[g] + k);
      }
      if (k < args.k) {
        const V row = load_up_to(x + k, args.k - k);
        for (int g = 0; g < kDotColumns; ++g) sum[g] += row * load_up_to(line[g] + k, args.k - k);
      }
      S tile[kDotColumns > V::kLanes ? kDotColumns : V::kLanes] = {};
      for (int g = 0; g < columns; ++g) tile[g] = reduce_add(sum[g]);
      finish_tile<kDotColumns, T>(args, tile, batch, m, n, 1, columns);
    }
  }
}

}  // namespace sluice::kernels::SLUICE_ISA
