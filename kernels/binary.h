// Functions of two tensors, element by element.
#pragma once

#include "engine/context.h"
#include "engine/dtype.h"
#include "engine/strided.h"

namespace sluice::kernels {

enum class BinaryFunction : uint8_t { add, sub, mul, div, maximum, minimum };

/// out[i] = function(a[i], b[i]); operands of the loop: out, a, b. A NaN on either side of maximum
/// and minimum is the result. `out` may be `a` or `b` when the strides agree.
struct BinaryArgs {
  BinaryFunction function;
  DType dtype;
  void* out;
  const void* a;
  const void* b;
  StridedLoop<3> loop;
};

void binary(CpuContext& context, const BinaryArgs& args);

}  // namespace sluice::kernels
