// The norm of all gradients, and the factor that bounds it.
#pragma once

#include <span>

#include "engine/tensor.h"

namespace sluice::ops {

/// The 2-norm of all `grads` taken as one vector, summed in f64 in a fixed order.
///
///   norm = sqrt(sum over tensors and elements of grad^2)
///
/// Shapes  any; undefined tensors (parameters that took no part) are skipped
/// DTypes  f32, f64, bf16, mixed at will
/// Cost    2 flops per element, one pass
/// Throws  DTypeError, DeviceError (not all on one device)
///
/// The result is infinity or NaN when an element is: a caller skips such a step.
double grad_norm(std::span<const Tensor> grads);

/// The factor, at most 1, that bounds a norm by `max_norm`: pass it as AdamWOptions::grad_scale.
///
///   scale = min(1, max_norm / norm)
///
/// Throws  ArgumentError (max_norm not > 0, norm not finite)
/// Source  Pascanu, Mikolov, Bengio 2013, arXiv:1211.5063, section 3.2
double clip_scale(double norm, double max_norm);

}  // namespace sluice::ops
