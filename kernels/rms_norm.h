// RMS normalisation of rows, as tensors (B, H, T, D) with any strides but a dense last axis. A
// plain norm over the last axis of a dense tensor is the case B = H = 1.
#pragma once

#include "engine/context.h"
#include "engine/dtype.h"
#include "kernels/row_strides.h"

namespace sluice::kernels {

struct RmsNormForward {
  DType dtype;            // of every pointer
  int64_t batch, tokens;  // B, T
  int64_t heads, width;   // H, D
  double eps;
  double weight_offset;  // added to each weight: 1 for the zero-centred form
  const void* x;         // (B, H, T, D)
  RowStrides x_strides;
  const void* weight;  // (H, D) rows weight_head_stride apart (0: one row for all); null: ones
  int64_t weight_head_stride;
  void* out;  // (B, H, T, D)
  RowStrides out_strides;
};

/// out = x / sqrt(mean_D(x^2) + eps) * (weight + weight_offset).
void rms_norm_forward(CpuContext& context, const RmsNormForward& args);

struct RmsNormBackward {
  DType dtype;
  int64_t batch, tokens;
  int64_t heads, width;
  double eps;
  double weight_offset;
  const void* x;
  RowStrides x_strides;
  const void* weight;  // as in the forward pass
  int64_t weight_head_stride;
  const void* grad_out;
  RowStrides grad_out_strides;
  void* grad_x;  // null: not wanted
  RowStrides grad_x_strides;
  void* grad_weight;  // of the weight's shape, dense; null: not wanted
  void* scratch;      // rms_norm_backward_scratch_bytes
};

/// Gradients; the statistics of a row are computed again in the pass that needs its sums anyway.
void rms_norm_backward(CpuContext& context, const RmsNormBackward& args);

/// Bytes of partial weight gradients; 0 when grad_weight is null.
size_t rms_norm_backward_scratch_bytes(const RmsNormBackward& args);

}  // namespace sluice::kernels
