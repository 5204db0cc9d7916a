// Affine map of the last axis with an optional activation, in one pass.
#pragma once

#include "engine/tensor.h"
#include "kernels/activation.h"

namespace sluice::ops {

using kernels::Activation;

struct LinearOptions {
  Activation activation = Activation::none;
};

/// Affine map of the last axis, then an activation; both happen while the product is in registers.
///
///   out[..., n] = f(sum_k x[..., k] * weight[n, k] + bias[n]),
///   f(y) = y | y * Phi(y) (gelu, exact) | y * sigmoid(y) (silu) | max(y, 0) (relu)
///
/// Shapes  x: (..., K), weight: (N, K), bias: (N) or undefined -> (..., N); any extent may be 0
/// DTypes  f32, f64, bf16 (sums in f32), equal
/// Grads   x, weight, bias; fixed order of sums for any thread count
/// Cost    2*M*N*K flops, M the number of rows; saves x, weight and, for gelu and silu, the
///         (M, N) values before the activation, for relu those after it
/// Throws  ShapeError, DTypeError, DeviceError
/// Source  gelu: Hendrycks, Gimpel 2016, arXiv:1606.08415
///
/// A row's last bits may depend on the number of rows: fewer than 8 are computed by dot products.
Tensor linear(
    const Tensor& x, const Tensor& weight, const Tensor& bias = {}, LinearOptions options = {});

}  // namespace sluice::ops
