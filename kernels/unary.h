// Functions of one tensor, element by element, and their gradients.
#pragma once

#include "engine/context.h"
#include "engine/dtype.h"
#include "engine/strided.h"

namespace sluice::kernels {

enum class UnaryFunction : uint8_t {
  neg,
  exp,
  log,
  sqrt,
  sigmoid,
  softplus,
  gelu,
  gelu_tanh,
  silu,
  elu,
  relu,
  square,
  abs,
  affine,    // alpha * x + beta
  quotient,  // x / alpha
  inverse,   // alpha / x
  at_least,  // max(x, alpha)
  at_most,   // min(x, alpha)
};

/// out[i] = function(x[i]); operand 0 of the loop is `out`, operand 1 `x`.
struct UnaryArgs {
  UnaryFunction function;
  DType dtype;
  void* out;
  const void* x;
  double alpha;
  double beta;
  StridedLoop<2> loop;
};

void unary(CpuContext& context, const UnaryArgs& args);

/// grad_x[i] = grad[i] * d function / dx; operands of the loop: grad_x, grad, x. A function of x,
/// not of the output: exp and sqrt would be rounded twice in bf16. Not for neg, affine and
/// quotient, whose gradients are functions of grad alone.
struct UnaryGradientArgs {
  UnaryFunction function;
  DType dtype;
  void* grad_x;
  const void* grad;
  const void* x;
  double alpha;
  StridedLoop<3> loop;
};

void unary_gradient(CpuContext& context, const UnaryGradientArgs& args);

}  // namespace sluice::kernels
