// Matrix product over the last two axes.
#pragma once

#include "engine/tensor.h"

namespace sluice::ops {

struct MatmulOptions {
  bool transpose_a = false;  // use the transpose of a's last two axes
  bool transpose_b = false;
};

/// Matrix product of the last two axes; the leading axes are batches and broadcast.
///
///   out[..., m, n] = sum_k a[..., m, k] * b[..., k, n]
///
/// Shapes  a: (..., M, K), or (..., K, M) with transpose_a; b: (..., K, N), or (..., N, K) with
///         transpose_b -> (..., M, N); any extent may be 0
/// DTypes  f32, f64, bf16 (sums in f32, those over broadcast batches, too), equal
/// Grads   a, b; fixed order of sums for any thread count
/// Cost    2*batches*M*N*K flops; saves a and b. Read in place when one of the two axes is dense
/// Throws  ShapeError, DTypeError, DeviceError
///
/// Last bits may depend on M: fewer than 8 rows may be computed by dot products.
Tensor matmul(const Tensor& a, const Tensor& b, MatmulOptions options = {});

}  // namespace sluice::ops
