// The gated activation of a SwiGLU feed-forward block.
#pragma once

#include "engine/tensor.h"

namespace sluice::ops {

/// Gated SiLU.
///
///   out[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + e^-x)
///
/// Shapes  gate, up: equal, any rank and strides -> the same; the halves of one (..., 2F)
/// projection
///         are read in place
/// DTypes  f32, f64, bf16 (computed in f32), equal
/// Grads   gate, up
/// Cost    one exponential per element; saves gate and up, not silu(gate)
/// Throws  ShapeError, DTypeError, DeviceError
/// Source  Shazeer 2020, arXiv:2002.05202, equation 6 (without its projections)
Tensor silu_mul(const Tensor& gate, const Tensor& up);

}  // namespace sluice::ops
