// Joining tensors along an axis.
#pragma once

#include <vector>

#include "engine/tensor.h"

namespace sluice::ops {

/// Concatenation along `axis`.
///
///   out[.., n_0 + .. + n_{k-1} + i, ..] = tensors[k][.., i, ..], n_k the extent of tensors[k]
///
/// Shapes  equal but for `axis` (negative counts from the end); extents of 0 are allowed
/// DTypes  all, equal
/// Grads   each tensor (a view of the gradient)
/// Throws  ArgumentError (no tensors, undefined), ShapeError, DTypeError, DeviceError
Tensor cat(const std::vector<Tensor>& tensors, int axis);

}  // namespace sluice::ops
