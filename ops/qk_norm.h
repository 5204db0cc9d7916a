// RMS normalisation of queries or keys, head by head.
#pragma once

#include "engine/tensor.h"

namespace sluice::ops {

struct QkNormOptions {
  double eps = 1e-6;
  bool zero_centred = false;  ///< multiply by 1 + weight
};

/// RMS norm over the head width, with a weight per head or one for all heads.
///
///   out[b,h,t,d] = x[b,h,t,d] / sqrt(mean_d(x[b,h,t,d]^2) + eps) * (weight[h,d] + zero_centred)
///
/// Shapes  x: (B, H, T, D) with any strides, weight: (H, D), (D) or undefined (ones) -> (B, H, T,
/// D),
///         a view of (B, T, H, D) memory
/// DTypes  f32, f64, bf16 (sums in f32), equal
/// Grads   x, weight; the weight's sum has a fixed order for any thread count
/// Cost    5 flops per element; saves x and weight
/// Throws  ShapeError, DTypeError, DeviceError, ArgumentError (eps < 0)
/// Source  Henry et al. 2020, arXiv:2010.04245, with an RMS norm in place of the L2 norm
Tensor qk_norm(const Tensor& x, const Tensor& weight, QkNormOptions options = {});

}  // namespace sluice::ops
