// Functions of two tensors, element by element. All of them:
//
// Shapes  a, b broadcast (aligned at the last axis, extents of 1 repeated) -> dense
// DTypes  f32, bf16 (computed in f32), f64, equal on both sides
// Grads   a, b: summed over the axes along which they were repeated, in a fixed order
// Throws  ShapeError, DTypeError, DeviceError, ArgumentError (undefined)
//
// A number on one side is not rounded to bf16.
#pragma once

#include "engine/tensor.h"

namespace sluice::ops {

/// a + b
Tensor add(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& a, double b);
/// a - b
Tensor sub(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, double b);
Tensor sub(double a, const Tensor& b);
/// a * b
Tensor mul(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, double b);
/// a / b
Tensor div(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, double b);
Tensor div(double a, const Tensor& b);
/// The larger one; NaN when either is. Where they are equal the gradient goes to a.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, double b);
/// The smaller one; NaN when either is. Where they are equal the gradient goes to a.
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, double b);

}  // namespace sluice::ops
