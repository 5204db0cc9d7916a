// Comparisons, element by element.
#pragma once

#include "engine/context.h"
#include "engine/dtype.h"
#include "engine/strided.h"

namespace sluice::kernels {

enum class Comparison : uint8_t { equal, less, less_equal };

/// out[i] = a[i] <comparison> b[i] as 0 or 1; a comparison with NaN is 0. Operands of the loop:
/// out, a, b.
struct CompareArgs {
  Comparison comparison;
  DType dtype;
  uint8_t* out;
  const void* a;
  const void* b;
  StridedLoop<3> loop;
};

void compare(CpuContext& context, const CompareArgs& args);

}  // namespace sluice::kernels
