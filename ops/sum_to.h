// The adjoint of broadcasting, for backward passes; never recorded.
#pragma once

#include "engine/tensor.h"

namespace sluice::ops {

/// Adds up the axes along which `shape` was broadcast to x.shape(), in a fixed order; `x` itself
/// when the shapes are equal.
Tensor sum_to(const Tensor& x, const Shape& shape);

/// sum_to(x * y, shape) in one pass with products in f32 or wider. `y` broadcasts to x.shape().
Tensor sum_products_to(const Tensor& x, const Tensor& y, const Shape& shape);

}  // namespace sluice::ops
