// Conversion between element types.
#pragma once

#include "engine/tensor.h"

namespace sluice::ops {

/// The same values in another dtype.
///
///   out[i] = x[i], rounded to nearest even; `x` itself when it has the dtype
///
/// Shapes  any -> the same
/// DTypes  all to all; floats become integers by truncation, saturating, NaN becomes 0
/// Grads   x when both dtypes are floating (the gradient is cast back)
/// Throws  ArgumentError (undefined)
Tensor cast(const Tensor& x, DType dtype);

}  // namespace sluice::ops
