// Layer normalisation over the last axis.
#pragma once

#include "engine/tensor.h"

namespace sluice::ops {

struct LayerNormOptions {
  double eps = 1e-5;
};

/// Layer norm: each row is shifted to mean 0 and scaled to variance 1, then scaled per column.
///
///   out[..., c] = (x[..., c] - mean_c x) / sqrt(var_c x + eps) * weight[c] + bias[c]
///
/// Shapes  x: (..., C), weight, bias: (C) or undefined (ones, zeros) -> (..., C)
/// DTypes  f32, f64, bf16 (sums in f32), equal
/// Grads   x, weight, bias; the weights' sums have a fixed order for any thread count
/// Cost    8 flops per element; saves x, weight and two numbers per row
/// Throws  ShapeError, DTypeError, DeviceError, ArgumentError (eps < 0)
/// Source  Ba, Kiros, Hinton 2016, arXiv:1607.06450, section 3
Tensor layer_norm(
    const Tensor& x, const Tensor& weight, const Tensor& bias, LayerNormOptions options = {});

}  // namespace sluice::ops
