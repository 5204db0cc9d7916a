// Softmax and its logarithm over the last axis.
#pragma once

#include "engine/tensor.h"

namespace sluice::ops {

/// Softmax over the last axis.
///
///   out[n,c] = e^x[n,c] / sum over j of e^x[n,j]
///
/// A row whose entries are all -infinity (nothing visible) gives zeros and gradient zero.
///
/// Shapes  (.., C) -> (.., C), C >= 0
/// DTypes  f32, bf16 (computed in f32), f64
/// Grads   x; saves x and recomputes
/// Throws  DTypeError, ShapeError (a scalar), ArgumentError (undefined)
Tensor softmax(const Tensor& x);

/// The logarithm of softmax, without its underflow.
///
///   out[n,c] = x[n,c] - log(sum over j of e^x[n,j])
///
/// A row whose entries are all -infinity stays so and gets gradient zero.
///
/// Shapes, DTypes, Grads, Throws as softmax
Tensor log_softmax(const Tensor& x);

}  // namespace sluice::ops
