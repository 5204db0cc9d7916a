// Picking entries of one axis by id.
#pragma once

#include "engine/tensor.h"

namespace sluice::ops {

/// The entries of `axis` named by `ids`, in their order; repeats are allowed.
///
///   out[.., i, ..] = x[.., ids[i], ..], zeros for id -1 (padding, dropped)
///
/// Shapes  x any with an axis, ids: (N) -> N in place of the extent of `axis`, dense
/// DTypes  x all, ids i32 or i64
/// Grads   x: each entry receives the sum over its places in rising order, in f32 or wider, by one
///         writer; id -1 receives nothing
/// Throws  ArgumentError (an id outside [-1, extent), undefined), ShapeError, DTypeError,
/// DeviceError
Tensor index_select(const Tensor& x, int axis, const Tensor& ids);

}  // namespace sluice::ops
