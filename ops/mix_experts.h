// The weighted sum of experts' outputs, token by token.
#pragma once

#include <vector>

#include "engine/tensor.h"

namespace sluice::ops {

/// Soft mixture of E experts: each token weighs the outputs that all experts computed for it.
///
///   out[b,t] = sum over e of weights[b,t,e] * outputs[e][b,t]
///
/// Shapes  weights: (.., E), outputs: E tensors (.., C) with equal leading axes -> (.., C)
/// DTypes  outputs f32, bf16, f64, all equal; weights the same, or f32 beside bf16 outputs; summed
///         in rising e in f32 or wider
/// Grads   weights (row dot products, in f32 or wider), each output; what is not needed is skipped
/// Cost    2*E*C flops per token, one pass over memory; backward 4*E*C, one pass
/// Throws  ArgumentError (no outputs, undefined), ShapeError, DTypeError, DeviceError
Tensor mix_experts(const Tensor& weights, const std::vector<Tensor>& outputs);

}  // namespace sluice::ops
