// The activations of kernels/activation.h and their slopes, on vectors.
#pragma once

#include "kernels/activation.h"
#include "kernels/simd/simd.h"

namespace sluice::kernels::SLUICE_ISA {

/// Phi(x), the standard normal distribution function, and its density phi(x).
template <class T>
struct Normal {
  Vec<T> cdf;
  Vec<T> density;
};

/// Phi(x) = erfc(-x / sqrt 2) / 2 with erfc(z) = e^(-z*z) * t * P(t), t = 1 / (1 + 0.3 z), z >= 0.
/// P is a Chebyshev fit of degree 8 (relative error 2.4e-8 for z up to 9.4, beyond which
/// e^(-z*z) is 0 in f32), so the lower tail keeps its relative accuracy, too.
SLUICE_INLINE Normal<float> normal(VecF x) {
  constexpr float kP[] = {
      -0.130419329f,
      0.490205139f,
      -0.522535980f,
      0.560327411f,
      -0.104055151f,
      0.219276235f,
      0.147123143f,
      0.170902714f,
      0.169175819f};
  const VecF z = max(x, VecF::zero() - x) * VecF::broadcast(0.707106781f);
  const VecF one = VecF::broadcast(1.0f);
  const VecF t = one / (one + z * VecF::broadcast(0.3f));
  VecF p = VecF::broadcast(kP[0]);
  for (int i = 1; i < 9; ++i) p = p * t + VecF::broadcast(kP[i]);
  const VecF e = exp(x * x * VecF::broadcast(-0.5f));
  const VecF tail = e * t * p * VecF::broadcast(0.5f);
  const VecF cdf = {x.raw < VecF::Raw{} ? tail.raw : (one - tail).raw};
  return {cdf, e * VecF::broadcast(0.398942280f)};
}

SLUICE_INLINE Normal<double> normal(Vec<double> x) {
  Normal<double> out{};
  for (int i = 0; i < Vec<double>::kLanes; ++i) {
    out.cdf.raw[i] = 0.5 * __builtin_erfc(-x.raw[i] * 0.70710678118654752);
    out.density.raw[i] = 0.39894228040143268 * __builtin_exp(-0.5 * x.raw[i] * x.raw[i]);
  }
  return out;
}

template <class T>
SLUICE_INLINE Vec<T> sigmoid(Vec<T> x) {
  const auto one = Vec<T>::broadcast(T(1));
  return one / (one + exp(Vec<T>::zero() - x));
}

template <class T>
SLUICE_INLINE Vec<T> activate(Activation kind, Vec<T> x) {
  switch (kind) {
    case Activation::none:
      break;
    case Activation::gelu:
      return x * normal(x).cdf;
    case Activation::silu:
      return x * sigmoid(x);
    case Activation::relu:
      return {x.raw < typename Vec<T>::Raw{} ? typename Vec<T>::Raw{} : x.raw};
  }
  return x;
}

/// d activate(kind, x) / dx; relu has slope 0 at 0.
template <class T>
SLUICE_INLINE Vec<T> activation_slope(Activation kind, Vec<T> x) {
  using Raw = typename Vec<T>::Raw;
  const auto one = Vec<T>::broadcast(T(1));
  switch (kind) {
    case Activation::none:
      break;
    case Activation::gelu: {
      const Normal<T> n = normal(x);
      return n.cdf + x * n.density;
    }
    case Activation::silu: {
      const Vec<T> s = sigmoid(x);
      return s + x * s * (one - s);
    }
    case Activation::relu:
      return {x.raw > Raw{} ? one.raw : Raw{}};
  }
  return one;
}

}  // namespace sluice::kernels::SLUICE_ISA
