// The weighted sum of E experts' outputs for each token, and its gradients.
#pragma once

#include "engine/context.h"
#include "engine/dtype.h"

namespace sluice::kernels {

/// out[n] = sum over e of weights[n, e] * outputs[e][n], summed in rising e in f32 or wider.
struct MixExperts {
  DType dtype;          // of outputs and out
  DType weights_dtype;  // dtype or f32
  int64_t rows, width;
  int experts;
  const void* weights;         // (rows, experts)
  const void* const* outputs;  // E of (rows, width)
  void* out;                   // (rows, width)
};

void mix_experts(CpuContext& context, const MixExperts& args);

/// grad_weights[n, e] = <grad[n], outputs[e][n]>, grad_outputs[e][n] = weights[n, e] * grad[n].
/// Null pointers are not written: grad_weights as a whole, each of grad_outputs.
struct MixExpertsGradient {
  DType dtype;
  DType weights_dtype;
  int64_t rows, width;
  int experts;
  const void* weights;         // (rows, experts)
  const void* const* outputs;  // E of (rows, width); read only for grad_weights
  const void* grad;            // (rows, width)
  void* grad_weights;          // (rows, experts)
  void* const* grad_outputs;   // E of (rows, width)
};

void mix_experts_gradient(CpuContext& context, const MixExpertsGradient& args);

}  // namespace sluice::kernels
