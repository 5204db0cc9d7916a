// Layer normalisation of dense rows, forward and backward.
#pragma once

#include "engine/context.h"
#include "engine/dtype.h"

namespace sluice::kernels {

struct LayerNormForward {
  DType dtype;  // of every pointer but statistics
  int64_t rows, width;
  double eps;
  const void* x;       // (rows, width)
  const void* weight;  // (width); null: ones
  const void* bias;    // (width); null: zeros
  void* out;           // (rows, width)
  void* statistics;    // (rows, 2): mean and 1 / standard deviation, f64 for f64, else f32
};

/// out = (x - mean) / sqrt(variance + eps) * weight + bias, the variance over `width` entries.
void layer_norm_forward(CpuContext& context, const LayerNormForward& args);

struct LayerNormBackward {
  DType dtype;
  int64_t rows, width;
  const void* x;
  const void* weight;
  const void* statistics;  // from the forward pass
  const void* grad_out;    // (rows, width)
  void* grad_x;            // (rows, width); null: not wanted
  void* grad_weight;       // (width); null: not wanted
  void* grad_bias;         // (width); null: not wanted
  void* scratch;           // layer_norm_backward_scratch_bytes
};

void layer_norm_backward(CpuContext& context, const LayerNormBackward& args);

/// Bytes of partial weight and bias gradients.
size_t layer_norm_backward_scratch_bytes(const LayerNormBackward& args);

}  // namespace sluice::kernels
