// One AdamW step of a list of tensors.
#pragma once

#include "engine/context.h"
#include "engine/dtype.h"

namespace sluice::kernels {

struct AdamWTensor {
  DType dtype;  // of param and grad; m and v are f64 for f64, else f32
  int64_t count;
  int64_t first_chunk;  // of kernels/tensor_list.h
  void* param;
  const void* grad;
  void* m;
  void* v;
};

struct AdamWArgs {
  const AdamWTensor* tensors;  // none empty
  int64_t size;                // of `tensors`
  int64_t chunks;              // of all of them
  double grad_scale;
  double beta1, beta2, eps;
  double decay;      // 1 - lr * weight_decay
  double step_size;  // lr / (1 - beta1^step)
  double v_scale;    // 1 / sqrt(1 - beta2^step)
};

/// g = grad_scale * grad, m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2,
/// param = decay * param - step_size * m / (v_scale * sqrt(v) + eps).
void adamw(CpuContext& context, const AdamWArgs& args);

}  // namespace sluice::kernels
