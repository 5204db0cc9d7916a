// The 2-norm of a list of tensors taken as one vector.
#pragma once

#include "engine/context.h"
#include "engine/dtype.h"

namespace sluice::kernels {

struct GradNormTensor {
  DType dtype;
  int64_t count;
  int64_t first_chunk;  // of kernels/tensor_list.h
  const void* data;
};

struct GradNormArgs {
  const GradNormTensor* tensors;  // none empty
  int64_t size;                   // of `tensors`
  int64_t chunks;                 // of all of them
  double* partials;               // (chunks) scratch
  double* norm;                   // (1)
};

/// norm = sqrt(sum of squares), squared and summed in f64, chunk by chunk in order.
void grad_norm(CpuContext& context, const GradNormArgs& args);

}  // namespace sluice::kernels
