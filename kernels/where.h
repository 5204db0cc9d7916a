// Choosing between two tensors, element by element.
#pragma once

#include "engine/context.h"
#include "engine/strided.h"

namespace sluice::kernels {

/// out[i] = condition[i] != 0 ? a[i] : b[i]; operands of the loop: out, condition, a, b. The
/// element type matters only by its size.
struct WhereArgs {
  void* out;
  const uint8_t* condition;
  const void* a;
  const void* b;
  int64_t element_bytes;  // 1, 2, 4 or 8
  StridedLoop<4> loop;
};

void where(CpuContext& context, const WhereArgs& args);

}  // namespace sluice::kernels
