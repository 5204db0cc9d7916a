// Comparisons, element by element: u8 masks of 0 and 1. All of them:
//
// Shapes  a, b broadcast -> dense
// DTypes  all, equal on both sides -> u8
// Grads   none
// Throws  ShapeError, DTypeError, DeviceError, ArgumentError (undefined)
//
// A comparison with NaN is 0. A number on the right is rounded to the dtype of a floating tensor,
// so equal(full(s, 0.1), 0.1) holds; integers are compared with it exactly (below 2^53).
#pragma once

#include "engine/tensor.h"

namespace sluice::ops {

/// a == b
Tensor equal(const Tensor& a, const Tensor& b);
Tensor equal(const Tensor& a, double b);
/// a < b
Tensor less(const Tensor& a, const Tensor& b);
Tensor less(const Tensor& a, double b);
/// a <= b
Tensor less_equal(const Tensor& a, const Tensor& b);
Tensor less_equal(const Tensor& a, double b);
/// a > b
Tensor greater(const Tensor& a, const Tensor& b);
Tensor greater(const Tensor& a, double b);
/// a >= b
Tensor greater_equal(const Tensor& a, const Tensor& b);
Tensor greater_equal(const Tensor& a, double b);

}  // namespace sluice::ops
