#include "ops/special.h"

#include "autograd/node.h"
#include "engine/context.h"
#include "kernels/special.h"
#include "ops/check.h"

namespace sluice::ops {
namespace {

using kernels::SpecialFunction;

Tensor evaluate(const char* op, SpecialFunction function, const Tensor& x, const Tensor& scale) {
  const Tensor out = empty_like(x);
  const kernels::Special args{
      .function = function,
      .x = x.raw(),
      .scale = scale.defined() ? scale.raw() : nullptr,
      .out = out.raw(),
      .dtype = x.dtype(),
      .count = x.numel()};
  SLUICE_LAUNCH(x.device(), op, kernels::special, args);
  return out;
}

struct Special final : autograd::Node {
  Special(const char* op, SpecialFunction slope, const Tensor& x, const Tensor& dense)
      : Node(op, {x}), derivative(slope) {
    save({dense});
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    return {evaluate(name(), derivative, saved(0), to_contiguous(grads[0]))};
  }

  SpecialFunction derivative;
};

Tensor special(
    const char* op, SpecialFunction function, SpecialFunction derivative, const Tensor& x) {
  check_floating(x, op, "x");
  const Tensor dense = to_contiguous(x);
  const Tensor out = evaluate(op, function, dense, {});
  if (autograd::should_record({x})) autograd::record<Special>(out, op, derivative, x, dense);
  return out;
}

}  // namespace

Tensor lgamma(const Tensor& x) {
  return special("lgamma", SpecialFunction::log_gamma, SpecialFunction::digamma, x);
}

Tensor digamma(const Tensor& x) {
  return special("digamma", SpecialFunction::digamma, SpecialFunction::trigamma, x);
}

Tensor trigamma(const Tensor& x) {
  return special("trigamma", SpecialFunction::trigamma, SpecialFunction::tetragamma, x);
}

}  // namespace sluice::ops
