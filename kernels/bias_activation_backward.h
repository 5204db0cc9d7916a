// The backward pass of a GEMM's epilogue.
#pragma once

#include <cstddef>

#include "engine/context.h"
#include "engine/dtype.h"
#include "kernels/activation.h"

namespace sluice::kernels {

struct BiasActivationBackward {
  DType dtype;  // of every pointer
  int64_t rows, columns;
  Activation activation;
  const void* grad_out;  // (rows, columns)
  int64_t grad_out_row_stride;
  const void* pre_activation;  // (rows, columns), dense; for relu its result serves as well
  void* grad_pre;              // (rows, columns), dense; null: not wanted
  void* grad_bias;             // (columns); null: not wanted
  void* scratch;               // bias_activation_backward_scratch_bytes
};

/// grad_pre = grad_out * activation'(pre_activation), grad_bias = sum over rows of grad_pre (before
/// it is rounded), in a fixed number of chunks of rows added in order.
void bias_activation_backward(CpuContext& context, const BiasActivationBackward& args);

size_t bias_activation_backward_scratch_bytes(const BiasActivationBackward& args);

}  // namespace sluice::kernels
