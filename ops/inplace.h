// Writing to a tensor that exists: for optimizers, caches and buffers. All of them:
//
// Shapes  the second tensor broadcasts to the target's shape
// Grads   never recorded. While recording is on, a target that takes part in a graph is refused; in
//         no-grad mode it may be written, and tensors saved from it become stale (a GradError in
//         their backward, never a wrong gradient)
// Throws  GradError; ArgumentError (undefined, or a target that repeats elements, such as an
// expanded
//         one); ShapeError, DTypeError, DeviceError
//
// The target may share memory with the second tensor only where both name the same elements.
#pragma once

#include "engine/tensor.h"

namespace sluice::ops {

/// target = value, converted to the target's dtype as by cast.
void copy_(const Tensor& target, const Tensor& value);
/// target = value everywhere.
void fill_(const Tensor& target, double value);
/// target += value, f32, bf16 or f64 on both sides.
void add_(const Tensor& target, const Tensor& value);
void add_(const Tensor& target, double value);
/// target *= value, f32, bf16 or f64 on both sides.
void mul_(const Tensor& target, const Tensor& value);
void mul_(const Tensor& target, double value);

}  // namespace sluice::ops
