// A dense copy of a strided tensor, and the unrecorded copy that other ops build on.
#pragma once

#include "engine/tensor.h"

namespace sluice::ops {

/// The same values laid out row-major without gaps.
///
///   out[i] = x[i]; `x` itself when it is dense already
///
/// Shapes  any -> the same
/// DTypes  all
/// Grads   x
/// Throws  ArgumentError (undefined)
Tensor contiguous(const Tensor& x);

/// into[i] = value[i] for equal shapes and dtypes, any strides; never recorded and does not bump
/// the version: for outputs under construction. In-place assignment by users is copy_
/// (ops/inplace.h).
void copy_elements(const Tensor& into, const Tensor& value);

}  // namespace sluice::ops
