// Choosing between two tensors, element by element.
#pragma once

#include "engine/tensor.h"

namespace sluice::ops {

/// out[i] = condition[i] != 0 ? a[i] : b[i]
///
/// Shapes  condition, a, b broadcast -> dense
/// DTypes  condition u8; a, b all, equal
/// Grads   a, b: zero where the other one was taken, even if that one is NaN or infinite
/// Throws  ShapeError, DTypeError, DeviceError, ArgumentError (undefined)
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

}  // namespace sluice::ops
