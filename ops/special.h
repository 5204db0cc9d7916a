// The gamma function's logarithm and the derivatives of it that Dirichlet distributions need.
#pragma once

#include "engine/tensor.h"

namespace sluice::ops {

/// log Gamma of each element.
///
///   out[i] = log Gamma(x[i]);  +inf at 0, NaN for x[i] < 0
///
/// Shapes  any -> the same
/// DTypes  f32, bf16, f64; computed in f64, so f32 results are correctly rounded but for rare ties
/// Grads   x: digamma(x)
/// Cost    about 50 ns per element and core
/// Throws  ArgumentError (undefined), DTypeError
Tensor lgamma(const Tensor& x);

/// Derivative of log Gamma: -inf at 0, NaN for x[i] < 0. Grads: x, by trigamma; else as lgamma.
Tensor digamma(const Tensor& x);

/// Derivative of digamma: +inf at 0, NaN for x[i] < 0. Grads: x, by the next derivative; else as
/// lgamma.
Tensor trigamma(const Tensor& x);

}  // namespace sluice::ops
