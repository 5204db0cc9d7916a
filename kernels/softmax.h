// Softmax and its logarithm over rows, and their gradients.
#pragma once

#include "engine/context.h"
#include "engine/dtype.h"

namespace sluice::kernels {

struct Softmax {
  DType dtype;
  bool logarithm;  // log_softmax
  int64_t rows, width;
  const void* x;  // (rows, width)
  void* out;      // (rows, width)
};

/// A row whose entries are all -infinity gives zeros (its logarithm: -infinity).
void softmax(CpuContext& context, const Softmax& args);

struct SoftmaxGradient {
  DType dtype;
  bool logarithm;
  int64_t rows, width;
  const void* x;     // (rows, width)
  const void* grad;  // (rows, width)
  void* grad_x;      // (rows, width)
};

/// With p = softmax(x): p * (grad - <grad, p>), and for log_softmax grad - p * sum(grad). A
/// function of x, not of the output, which in bf16 is rounded more than the gradient may be. A row
/// that was all -infinity gets zeros.
void softmax_gradient(CpuContext& context, const SoftmaxGradient& args);

}  // namespace sluice::kernels
