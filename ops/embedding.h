// Rows of a table by id.
#pragma once

#include "engine/tensor.h"

namespace sluice::ops {

/// Rows of `weight` by id; id -1 stands for padding.
///
///   out[..., c] = weight[ids[...], c], 0 where ids[...] == -1
///
/// Shapes  weight: (V, C), ids: any -> ids' shape followed by C
/// DTypes  weight: f32, f64, bf16 (gradient sums in f32); ids: i32 or i64
/// Grads   weight: dense, one writer per row, positions added in rising order; none for id -1
/// Cost    one copy; saves ids. Backward adds one index per id and per row of weight
/// Throws  ShapeError, DTypeError, DeviceError, ArgumentError (an id outside [-1, V))
Tensor embedding(const Tensor& weight, const Tensor& ids);

}  // namespace sluice::ops
