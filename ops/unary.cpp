#include "ops/unary.h"

#include "autograd/node.h"
#include "ops/check.h"
#include "ops/unary_function.h"

namespace sluice::ops {
namespace {

using kernels::UnaryFunction;

// Functions whose gradient needs nothing but the incoming one.
bool is_linear(UnaryFunction function) {
  return function == UnaryFunction::neg || function == UnaryFunction::affine ||
         function == UnaryFunction::quotient;
}

Tensor gradient(
    const char* op, UnaryFunction function, const Tensor& grad, const Tensor& x, double alpha) {
  Tensor out = empty_like(grad);
  const kernels::UnaryGradientArgs args{
      function,
      grad.dtype(),
      out.raw(),
      grad.raw(),
      x.raw(),
      alpha,
      unordered_loop<3>(grad.shape(), {out.strides(), grad.strides(), x.strides()})};
  SLUICE_LAUNCH(grad.device(), op, kernels::unary_gradient, args);
  return out;
}

struct Unary final : autograd::Node {
  Unary(const char* op, UnaryFunction applied, const Tensor& x, double scalar)
      : Node(op, {x}), function(applied), alpha(scalar) {
    if (!is_linear(function)) save({x});
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    if (is_linear(function)) return {unary_function(name(), function, grads[0], alpha)};
    return {gradient(name(), function, grads[0], saved(0), alpha)};
  }

  UnaryFunction function;
  double alpha;
};

}  // namespace

Tensor unary_function(
    const char* op, UnaryFunction function, const Tensor& x, double alpha, double beta) {
  check_floating(x, op, "x");
  Tensor out = empty_like(x);
  const kernels::UnaryArgs args{
      function,
      x.dtype(),
      out.raw(),
      x.raw(),
      alpha,
      beta,
      unordered_loop<2>(x.shape(), {out.strides(), x.strides()})};
  SLUICE_LAUNCH(x.device(), op, kernels::unary, args);
  if (autograd::should_record({x})) autograd::record<Unary>(out, op, function, x, alpha);
  return out;
}

Tensor neg(const Tensor& x) { return unary_function("neg", UnaryFunction::neg, x); }
Tensor exp(const Tensor& x) { return unary_function("exp", UnaryFunction::exp, x); }
Tensor log(const Tensor& x) { return unary_function("log", UnaryFunction::log, x); }
Tensor sqrt(const Tensor& x) { return unary_function("sqrt", UnaryFunction::sqrt, x); }
Tensor sigmoid(const Tensor& x) { return unary_function("sigmoid", UnaryFunction::sigmoid, x); }
Tensor softplus(const Tensor& x) { return unary_function("softplus", UnaryFunction::softplus, x); }
Tensor silu(const Tensor& x) { return unary_function("silu", UnaryFunction::silu, x); }
Tensor elu(const Tensor& x) { return unary_function("elu", UnaryFunction::elu, x); }
Tensor relu(const Tensor& x) { return unary_function("relu", UnaryFunction::relu, x); }
Tensor square(const Tensor& x) { return unary_function("square", UnaryFunction::square, x); }
Tensor abs(const Tensor& x) { return unary_function("abs", UnaryFunction::abs, x); }

Tensor gelu(const Tensor& x, GeluForm form) {
  const bool exact = form == GeluForm::erf;
  return unary_function("gelu", exact ? UnaryFunction::gelu : UnaryFunction::gelu_tanh, x);
}

}  // namespace sluice::ops
