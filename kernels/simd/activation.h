// The activations of kernels/activation.h and their slopes, on vectors.
#pragma once

#include "kernels/activation.h"
#include "kernels/simd/math.h"

namespace sluice::kernels::SLUICE_ISA {

template <class T>
SLUICE_INLINE Vec<T> activate(Activation kind, Vec<T> x) {
  switch (kind) {
    case Activation::none:
      break;
    case Activation::gelu:
      return gelu(x);
    case Activation::silu:
      return silu(x);
    case Activation::relu:
      return at_least(x, 0);
  }
  return x;
}

/// d activate(kind, x) / dx; relu has slope 0 at 0.
template <class T>
SLUICE_INLINE Vec<T> activation_slope(Activation kind, Vec<T> x) {
  const Vec<T> one = Vec<T>::broadcast(T(1));
  switch (kind) {
    case Activation::none:
      break;
    case Activation::gelu:
      return gelu_slope(x);
    case Activation::silu:
      return silu_slope(x);
    case Activation::relu:
      return select_less(Vec<T>::zero(), x, one, Vec<T>::zero());
  }
  return one;
}

}  // namespace sluice::kernels::SLUICE_ISA
