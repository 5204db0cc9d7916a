// The k largest of each row, in falling order.
#pragma once

#include <cstdint>

#include "engine/context.h"
#include "engine/dtype.h"

namespace sluice::kernels {

/// Equal scores keep the order of their indices; NaN ranks after everything, minus infinity
/// included.
struct TopK {
  const void* scores;  // (rows, experts)
  void* values;        // (rows, k)
  int32_t* ids;        // (rows, k)
  DType dtype;
  int64_t rows, experts;
  int k;  // <= experts
};
void top_k(CpuContext& context, const TopK& args);

/// grad_scores[r, ids[r,j]] = grad_values[r,j], 0 elsewhere.
struct TopKBackward {
  const void* grad_values;  // (rows, k)
  const int32_t* ids;       // (rows, k)
  void* grad_scores;        // (rows, experts)
  DType dtype;
  int64_t rows, experts;
  int k;
};
void top_k_backward(CpuContext& context, const TopKBackward& args);

}  // namespace sluice::kernels
