#include "ops/binary.h"

#include "autograd/node.h"
#include "kernels/binary.h"
#include "ops/broadcast.h"
#include "ops/cast.h"
#include "ops/check.h"
#include "ops/compare.h"
#include "ops/sum_to.h"
#include "ops/unary.h"
#include "ops/unary_function.h"
#include "ops/where.h"

namespace sluice::ops {
namespace {

using kernels::BinaryFunction;
using kernels::UnaryFunction;

struct Sum final : autograd::Node {
  Sum(const char* op, const Tensor& a, const Tensor& b, bool subtracts)
      : Node(op, {a, b}), a_shape(a.shape()), b_shape(b.shape()), negative(subtracts) {}

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    std::vector<Tensor> out(2);
    if (needs(0)) out[0] = sum_to(grads[0], a_shape);
    if (needs(1)) {
      out[1] = sum_to(grads[0], b_shape);
      if (negative) out[1] = neg(out[1]);
    }
    return out;
  }

  Shape a_shape;
  Shape b_shape;
  bool negative;
};

// sum_to(x * y, shape), without the product in memory where it is summed.
Tensor product_to(const Tensor& x, const Tensor& y, const Shape& shape) {
  return x.shape() == shape ? mul(x, y) : sum_products_to(x, y, shape);
}

Tensor widen(const Tensor& x) { return x.dtype() == DType::bf16 ? cast(x, DType::f32) : x; }

struct Mul final : autograd::Node {
  Mul(const Tensor& a, const Tensor& b)
      : Node("mul", {a, b}), a_shape(a.shape()), b_shape(b.shape()) {
    save({needs(1) ? a : Tensor(), needs(0) ? b : Tensor()});
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    std::vector<Tensor> out(2);
    if (needs(0)) out[0] = product_to(grads[0], saved(1), a_shape);
    if (needs(1)) out[1] = product_to(grads[0], saved(0), b_shape);
    return out;
  }

  Shape a_shape;
  Shape b_shape;
};

struct Div final : autograd::Node {
  Div(const Tensor& a, const Tensor& b)
      : Node("div", {a, b}), a_shape(a.shape()), b_shape(b.shape()) {
    save({needs(1) ? a : Tensor(), b});
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor& b = saved(1);
    std::vector<Tensor> out(2);
    if (needs(0)) out[0] = sum_to(div(grads[0], b), a_shape);
    if (needs(1)) {
      // Three products in a row: in bf16 each would round.
      const Tensor wide_b = widen(b);
      const Tensor quotient = div(widen(grads[0]), wide_b);
      out[1] = neg(cast(product_to(quotient, div(widen(saved(0)), wide_b), b_shape), b.dtype()));
    }
    return out;
  }

  Shape a_shape;
  Shape b_shape;
};

// maximum and minimum: the gradient goes to the chosen side, to a when they are equal.
struct Choice final : autograd::Node {
  Choice(const char* op, const Tensor& a, const Tensor& b, bool larger)
      : Node(op, {a, b}), takes_larger(larger) {
    save({a, b});
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor& a = saved(0);
    const Tensor& b = saved(1);
    const Tensor& grad = grads[0];
    const Tensor takes_a = takes_larger ? greater_equal(a, b) : less_equal(a, b);
    const Tensor zero = zeros({}, {grad.dtype(), grad.device()});
    std::vector<Tensor> out(2);
    if (needs(0)) out[0] = sum_to(where(takes_a, grad, zero), a.shape());
    if (needs(1)) out[1] = sum_to(where(takes_a, zero, grad), b.shape());
    return out;
  }

  bool takes_larger;
};

Tensor binary_function(const char* op, BinaryFunction function, const Tensor& a, const Tensor& b) {
  check_floating(a, op, "a");
  check_like(b, a, op, "b");
  const Shape shape = broadcast_shapes(a.shape(), b.shape(), op);
  Tensor out = empty(shape, {a.dtype(), a.device()});
  const kernels::BinaryArgs args{
      function,
      a.dtype(),
      out.raw(),
      a.raw(),
      b.raw(),
      unordered_loop<3>(
          shape, {out.strides(), broadcast_strides(a, shape), broadcast_strides(b, shape)})};
  SLUICE_LAUNCH(a.device(), op, kernels::binary, args);
  return out;
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  Tensor out = binary_function("add", BinaryFunction::add, a, b);
  if (autograd::should_record({a, b})) autograd::record<Sum>(out, "add", a, b, false);
  return out;
}

Tensor sub(const Tensor& a, const Tensor& b) {
  Tensor out = binary_function("sub", BinaryFunction::sub, a, b);
  if (autograd::should_record({a, b})) autograd::record<Sum>(out, "sub", a, b, true);
  return out;
}

Tensor mul(const Tensor& a, const Tensor& b) {
  Tensor out = binary_function("mul", BinaryFunction::mul, a, b);
  if (autograd::should_record({a, b})) autograd::record<Mul>(out, a, b);
  return out;
}

Tensor div(const Tensor& a, const Tensor& b) {
  Tensor out = binary_function("div", BinaryFunction::div, a, b);
  if (autograd::should_record({a, b})) autograd::record<Div>(out, a, b);
  return out;
}

Tensor maximum(const Tensor& a, const Tensor& b) {
  Tensor out = binary_function("maximum", BinaryFunction::maximum, a, b);
  if (autograd::should_record({a, b})) autograd::record<Choice>(out, "maximum", a, b, true);
  return out;
}

Tensor minimum(const Tensor& a, const Tensor& b) {
  Tensor out = binary_function("minimum", BinaryFunction::minimum, a, b);
  if (autograd::should_record({a, b})) autograd::record<Choice>(out, "minimum", a, b, false);
  return out;
}

Tensor add(const Tensor& a, double b) {
  return unary_function("add", UnaryFunction::affine, a, 1.0, b);
}
Tensor sub(const Tensor& a, double b) {
  return unary_function("sub", UnaryFunction::affine, a, 1.0, -b);
}
Tensor sub(double a, const Tensor& b) {
  return unary_function("sub", UnaryFunction::affine, b, -1.0, a);
}
Tensor mul(const Tensor& a, double b) {
  return unary_function("mul", UnaryFunction::affine, a, b, 0.0);
}
Tensor div(const Tensor& a, double b) {
  return unary_function("div", UnaryFunction::quotient, a, b);
}
Tensor div(double a, const Tensor& b) {
  return unary_function("div", UnaryFunction::inverse, b, a);
}
Tensor maximum(const Tensor& a, double b) {
  return unary_function("maximum", UnaryFunction::at_least, a, b);
}
Tensor minimum(const Tensor& a, double b) {
  return unary_function("minimum", UnaryFunction::at_most, a, b);
}

}  // namespace sluice::ops
