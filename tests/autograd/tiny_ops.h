// A handful of f64 operations, so that the tests of the graph do not depend on ops/.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "autograd/autograd.h"
#include "autograd/node.h"
#include "engine/tensor.h"

namespace sluice::testing::tiny {

template <class F>
Tensor map(F&& f, const Tensor& a) {
  const Tensor out = empty(a.shape(), {DType::f64, {}});
  const Tensor dense = to_contiguous(a);
  const double* x = dense.data<double>();
  for (int64_t i = 0; i < a.numel(); ++i) out.data<double>()[i] = f(x[i]);
  return out;
}

template <class F>
Tensor map(F&& f, const Tensor& a, const Tensor& b) {
  const Tensor out = empty(a.shape(), {DType::f64, {}});
  const Tensor dense_a = to_contiguous(a);
  const Tensor dense_b = to_contiguous(b);
  const double* x = dense_a.data<double>();
  const double* y = dense_b.data<double>();
  for (int64_t i = 0; i < a.numel(); ++i) out.data<double>()[i] = f(x[i], y[i]);
  return out;
}

// Hands its incoming gradient through to both inputs: the same tensor twice.
struct Add final : autograd::Node {
  Add(const Tensor& a, const Tensor& b) : Node("add", {a, b}) {}
  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    return {grads[0], grads[0]};
  }
};

inline Tensor add(const Tensor& a, const Tensor& b) {
  const Tensor out = map([](double x, double y) { return x + y; }, a, b);
  if (autograd::should_record({a, b})) autograd::record<Add>(out, a, b);
  return out;
}

Tensor mul(const Tensor& a, const Tensor& b);

struct Mul final : autograd::Node {
  Mul(const Tensor& a, const Tensor& b) : Node("mul", {a, b}) { save({a, b}); }
  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    return {
        needs(0) ? mul(grads[0], saved(1)) : Tensor(),
        needs(1) ? mul(grads[0], saved(0)) : Tensor()};
  }
};

inline Tensor mul(const Tensor& a, const Tensor& b) {
  const Tensor out = map([](double x, double y) { return x * y; }, a, b);
  if (autograd::should_record({a, b})) autograd::record<Mul>(out, a, b);
  return out;
}

// Saves its output, as softmax and exp do.
struct Exp final : autograd::Node {
  Exp(const Tensor& a, const Tensor& out) : Node("exp", {a}) { save({out}); }
  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    return {mul(grads[0], saved(0))};
  }
};

inline Tensor exp(const Tensor& a) {
  const Tensor out = map([](double x) { return std::exp(x); }, a);
  if (autograd::should_record({a})) autograd::record<Exp>(out, a, out);
  return out;
}

struct Sum final : autograd::Node {
  explicit Sum(const Tensor& a) : Node("sum", {a}), shape(a.shape()) {}
  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    return {grads[0].alias(shape, Strides{}, grads[0].offset())};  // one element, repeated
  }
  Shape shape;
};

inline Tensor sum(const Tensor& a) {
  const Tensor out = zeros({}, {DType::f64, {}});
  for (int64_t i = 0; i < a.numel(); ++i) *out.data<double>() += a.data<double>()[i];
  if (autograd::should_record({a})) autograd::record<Sum>(out, a);
  return out;
}

// (a, a * a): two outputs of one node; the gradient of either may be missing.
struct Powers final : autograd::Node {
  explicit Powers(const Tensor& a) : Node("powers", {a}) { save({a}); }
  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    Tensor grad;
    if (grads[0].defined()) grad = grads[0];
    if (grads[1].defined()) {
      const Tensor part = map([](double g, double x) { return 2 * g * x; }, grads[1], saved(0));
      grad = grad.defined() ? add(grad, part) : part;
    }
    return {grad};
  }
};

inline std::vector<Tensor> powers(const Tensor& a) {
  std::vector<Tensor> out = {clone(a), mul(a.detach(), a.detach())};
  if (autograd::should_record({a})) autograd::set_history(std::make_shared<Powers>(a), out);
  return out;
}

inline Tensor values(const std::vector<double>& numbers) {
  return from_values<double>(numbers, {static_cast<int64_t>(numbers.size())});
}

inline Tensor leaf(const std::vector<double>& numbers) {
  return autograd::set_requires_grad(values(numbers));
}

}  // namespace sluice::testing::tiny
