// Moving elements of one dtype between two strided layouts.
#pragma once

#include "engine/context.h"
#include "engine/strided.h"

namespace sluice::kernels {

/// to[i] = from[i] over the loop's space; operand 0 of the loop is `to`, operand 1 `from`.
struct CopyArgs {
  void* to;
  const void* from;
  int64_t element_bytes;  // 1, 2, 4 or 8
  StridedLoop<2> loop;
};

void copy(CpuContext& context, const CopyArgs& args);

}  // namespace sluice::kernels
