// Conversion between element types.
#pragma once

#include "engine/context.h"
#include "engine/dtype.h"
#include "engine/strided.h"

namespace sluice::kernels {

/// to[i] = from[i] over the loop's space; operand 0 of the loop is `to`, operand 1 `from`.
/// Rounds to nearest even; floats become integers by truncation, saturating, NaN becomes 0.
struct CastArgs {
  void* to;
  const void* from;
  DType to_dtype;
  DType from_dtype;
  StridedLoop<2> loop;
};

void cast(CpuContext& context, const CastArgs& args);

}  // namespace sluice::kernels
