// The functions of kernels/unary.h as functors: value(x) and gradient(grad, x). V is a register
// of float or double.
#pragma once

#include "kernels/simd/math.h"
#include "kernels/unary.h"

namespace sluice::kernels::SLUICE_ISA {

template <UnaryFunction function>
struct Unary;

template <class V>
struct UnaryScalars {
  V alpha, beta;
};

template <>
struct Unary<UnaryFunction::neg> {
  template <class V>
  static SLUICE_INLINE V value(V x, UnaryScalars<V>) {
    return -x;
  }
};

template <>
struct Unary<UnaryFunction::exp> {
  template <class V>
  static SLUICE_INLINE V value(V x, UnaryScalars<V>) {
    return exp(x);
  }
  template <class V>
  static SLUICE_INLINE V gradient(V grad, V x, UnaryScalars<V>) {
    return grad * exp(x);
  }
};

template <>
struct Unary<UnaryFunction::log> {
  template <class V>
  static SLUICE_INLINE V value(V x, UnaryScalars<V>) {
    return log(x);
  }
  template <class V>
  static SLUICE_INLINE V gradient(V grad, V x, UnaryScalars<V>) {
    return grad / x;
  }
};

template <>
struct Unary<UnaryFunction::sqrt> {
  template <class V>
  static SLUICE_INLINE V value(V x, UnaryScalars<V>) {
    return sqrt(x);
  }
  template <class V>
  static SLUICE_INLINE V gradient(V grad, V x, UnaryScalars<V>) {
    const V y = sqrt(x);
    return grad / (y + y);
  }
};

template <>
struct Unary<UnaryFunction::sigmoid> {
  template <class V>
  static SLUICE_INLINE V value(V x, UnaryScalars<V>) {
    return sigmoid(x);
  }
  template <class V>
  static SLUICE_INLINE V gradient(V grad, V x, UnaryScalars<V>) {
    const auto s = sigmoid_pair(x);
    return grad * s.value * s.complement;
  }
};

template <>
struct Unary<UnaryFunction::softplus> {
  template <class V>
  static SLUICE_INLINE V value(V x, UnaryScalars<V>) {
    return softplus(x);
  }
  template <class V>
  static SLUICE_INLINE V gradient(V grad, V x, UnaryScalars<V>) {
    return grad * sigmoid(x);
  }
};

template <>
struct Unary<UnaryFunction::gelu> {
  template <class V>
  static SLUICE_INLINE V value(V x, UnaryScalars<V>) {
    return gelu(x);
  }
  template <class V>
  static SLUICE_INLINE V gradient(V grad, V x, UnaryScalars<V>) {
    return grad * gelu_slope(x);
  }
};

template <>
struct Unary<UnaryFunction::gelu_tanh> {
  template <class V>
  static SLUICE_INLINE V value(V x, UnaryScalars<V>) {
    return gelu_tanh(x);
  }
  template <class V>
  static SLUICE_INLINE V gradient(V grad, V x, UnaryScalars<V>) {
    return grad * gelu_tanh_slope(x);
  }
};

template <>
struct Unary<UnaryFunction::silu> {
  template <class V>
  static SLUICE_INLINE V value(V x, UnaryScalars<V>) {
    return silu(x);
  }
  template <class V>
  static SLUICE_INLINE V gradient(V grad, V x, UnaryScalars<V>) {
    return grad * silu_slope(x);
  }
};

template <>
struct Unary<UnaryFunction::elu> {
  template <class V>
  static SLUICE_INLINE V value(V x, UnaryScalars<V>) {
    return select_less(V::zero(), x, x, expm1_negative(at_most(x, 0)));
  }
  template <class V>
  static SLUICE_INLINE V gradient(V grad, V x, UnaryScalars<V>) {
    return grad * exp(at_most(x, 0));
  }
};

template <>
struct Unary<UnaryFunction::relu> {
  template <class V>
  static SLUICE_INLINE V value(V x, UnaryScalars<V>) {
    return at_least(x, 0);
  }
  template <class V>
  static SLUICE_INLINE V gradient(V grad, V x, UnaryScalars<V>) {
    return select_less(V::zero(), x, grad, V::zero());
  }
};

template <>
struct Unary<UnaryFunction::square> {
  template <class V>
  static SLUICE_INLINE V value(V x, UnaryScalars<V>) {
    return x * x;
  }
  template <class V>
  static SLUICE_INLINE V gradient(V grad, V x, UnaryScalars<V>) {
    return grad * (x + x);
  }
};

template <>
struct Unary<UnaryFunction::abs> {
  template <class V>
  static SLUICE_INLINE V value(V x, UnaryScalars<V>) {
    return abs(x);
  }
  template <class V>
  static SLUICE_INLINE V gradient(V grad, V x, UnaryScalars<V>) {
    const V zero = V::zero();
    return select_less(x, zero, -grad, select_less(zero, x, grad, zero));
  }
};

template <>
struct Unary<UnaryFunction::affine> {
  template <class V>
  static SLUICE_INLINE V value(V x, UnaryScalars<V> scalars) {
    return scalars.alpha * x + scalars.beta;
  }
};

template <>
struct Unary<UnaryFunction::quotient> {
  template <class V>
  static SLUICE_INLINE V value(V x, UnaryScalars<V> scalars) {
    return x / scalars.alpha;
  }
};

template <>
struct Unary<UnaryFunction::inverse> {
  template <class V>
  static SLUICE_INLINE V value(V x, UnaryScalars<V> scalars) {
    return scalars.alpha / x;
  }
  template <class V>
  static SLUICE_INLINE V gradient(V grad, V x, UnaryScalars<V> scalars) {
    return -grad * (scalars.alpha / x) / x;
  }
};

template <>
struct Unary<UnaryFunction::at_least> {
  template <class V>
  static SLUICE_INLINE V value(V x, UnaryScalars<V> scalars) {
    return max(scalars.alpha, x);
  }
  template <class V>
  static SLUICE_INLINE V gradient(V grad, V x, UnaryScalars<V> scalars) {
    return select_less(x, scalars.alpha, V::zero(), grad);
  }
};

template <>
struct Unary<UnaryFunction::at_most> {
  template <class V>
  static SLUICE_INLINE V value(V x, UnaryScalars<V> scalars) {
    return min(scalars.alpha, x);
  }
  template <class V>
  static SLUICE_INLINE V gradient(V grad, V x, UnaryScalars<V> scalars) {
    return select_less(scalars.alpha, x, V::zero(), grad);
  }
};

}  // namespace sluice::kernels::SLUICE_ISA
