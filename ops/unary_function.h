// What the ops over kernels/unary.h share: check, allocate, launch, record.
#pragma once

#include "engine/tensor.h"
#include "kernels/unary.h"

namespace sluice::ops {

/// `function` of x with its scalars, recorded under the name `op`.
Tensor unary_function(
    const char* op,
    kernels::UnaryFunction function,
    const Tensor& x,
    double alpha = 1,
    double beta = 0);

}  // namespace sluice::ops
