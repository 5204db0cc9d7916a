// Root-mean-square normalisation over the last axis.
#pragma once

#include "engine/tensor.h"

namespace sluice::ops {

struct RmsNormOptions {
  double eps = 1e-6;
  bool zero_centred = false;  ///< multiply by 1 + weight, so that weight decay pulls towards 1
};

/// RMS norm: each row is divided by its root mean square and scaled per column.
///
///   out[..., c] = x[..., c] / sqrt(mean_c(x[..., c]^2) + eps) * (weight[c] + (zero_centred ? 1 :
///   0))
///
/// Shapes  x: (..., C), weight: (C) or undefined (ones) -> (..., C)
/// DTypes  f32, f64, bf16 (sums in f32), equal
/// Grads   x, weight; the weight's sum has a fixed order for any thread count
/// Cost    5 flops per element; saves x and weight
/// Throws  ShapeError, DTypeError, DeviceError, ArgumentError (eps < 0)
/// Source  Zhang, Sennrich 2019, arXiv:1910.07467, equation 4
Tensor rms_norm(const Tensor& x, const Tensor& weight, RmsNormOptions options = {});

}  // namespace sluice::ops
