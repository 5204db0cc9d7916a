// Functions on vector registers beyond those of simd.h. f32 forms are polynomials that stay in
// registers; f64 forms call the C library lane by lane: f64 is for truth, not for speed.
#pragma once

#include "kernels/simd/simd.h"

namespace sluice::kernels::SLUICE_ISA {

using VecD = Vec<double>;

/// a < b ? x : y, lane by lane; an unordered comparison selects y.
template <class T>
SLUICE_INLINE Vec<T> select_less(Vec<T> a, Vec<T> b, Vec<T> x, Vec<T> y) {
  return {a.raw < b.raw ? x.raw : y.raw};
}

template <class T>
SLUICE_INLINE Vec<T> operator-(Vec<T> x) {
  return {-x.raw};
}

template <class T>
SLUICE_INLINE Vec<T> abs(Vec<T> x) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  using Mask __attribute__((vector_size(kVectorBytes))) = Bits;
  Mask bits;
  std::memcpy(&bits, &x.raw, sizeof(bits));
  bits &= ~Bits(0) >> 1;
  std::memcpy(&x.raw, &bits, sizeof(bits));
  return x;
}

template <class T>
SLUICE_INLINE Vec<T> sqrt(Vec<T> x) {
  for (int i = 0; i < Vec<T>::kLanes; ++i) x.raw[i] = T(__builtin_sqrt(x.raw[i]));
  return x;
}

/// Bounds that keep NaN: min(limit, x) and max(limit, x) of simd.h return x when it is unordered.
template <class T>
SLUICE_INLINE Vec<T> at_most(Vec<T> x, double limit) {
  return min(Vec<T>::broadcast(T(limit)), x);
}
template <class T>
SLUICE_INLINE Vec<T> at_least(Vec<T> x, double limit) {
  return max(Vec<T>::broadcast(T(limit)), x);
}

namespace detail {

/// c[0] + x * (c[1] + x * (...)).
template <int N>
SLUICE_INLINE VecF polynomial(VecF x, const float (&c)[N]) {
  VecF sum = VecF::broadcast(c[N - 1]);
  for (int i = N - 2; i >= 0; --i) sum = sum * x + VecF::broadcast(c[i]);
  return sum;
}

}  // namespace detail

/// Natural logarithm, relative error below 2e-7 away from 1 and absolute below 1e-7 near it;
/// -infinity at 0, NaN below. Cephes logf: split at sqrt(2), polynomial of degree 8.
SLUICE_INLINE VecF log(VecF x) {
  using Int __attribute__((vector_size(kVectorBytes))) = int32_t;
  const VecF tiny = VecF::broadcast(1.17549435e-38f);
  const VecF scaled = select_less(x, tiny, x * VecF::broadcast(8388608.0f), x);
  const VecF shift = select_less(x, tiny, VecF::broadcast(-23.0f), VecF::zero());
  Int bits;
  std::memcpy(&bits, &scaled.raw, sizeof(bits));
  const Int exponent = (bits - 0x3f3504f3) >> 23;
  bits -= exponent << 23;
  VecF f;
  std::memcpy(&f.raw, &bits, sizeof(bits));
  f = f - VecF::broadcast(1.0f);
  const VecF e = VecF{__builtin_convertvector(exponent, VecF::Raw)} + shift;
  const VecF square = f * f;
  VecF y = detail::polynomial(
               f,
               {3.3333331174e-1f,
                -2.4999993993e-1f,
                2.0000714765e-1f,
                -1.6668057665e-1f,
                1.4249322787e-1f,
                -1.2420140846e-1f,
                1.1676998740e-1f,
                -1.1514610310e-1f,
                7.0376836292e-2f}) *
           f * square;
  y = y + e * VecF::broadcast(-2.12194440e-4f) - square * VecF::broadcast(0.5f);
  y = f + y + e * VecF::broadcast(0.693359375f);
  const VecF::Raw infinity = VecF::broadcast(__builtin_inff()).raw;
  y.raw = x.raw < infinity ? y.raw : x.raw;  // infinity and NaN are their own logarithms
  y.raw = x.raw == VecF::Raw{} ? -infinity : y.raw;
  y.raw = x.raw < VecF::Raw{} ? infinity - infinity : y.raw;
  return y;
}

SLUICE_INLINE VecD log(VecD x) {
  for (int i = 0; i < VecD::kLanes; ++i) x.raw[i] = __builtin_log(x.raw[i]);
  return x;
}

/// log(1 + y) for y in [0, 1], relative error below 2e-7 (own minimax fit of log1p(y) / y).
SLUICE_INLINE VecF log1p_unit(VecF y) {
  return y * detail::polynomial(
                 y,
                 {1.0f,
                  -0.4999990165233612f,
                  0.3332996368408203f,
                  -0.24954134225845337f,
                  0.1967593878507614f,
                  -0.15305592119693756f,
                  0.10603653639554977f,
                  -0.05695951730012894f,
                  0.019851453602313995f,
                  -0.0032440233044326305f});
}

SLUICE_INLINE VecD log1p_unit(VecD y) {
  for (int i = 0; i < VecD::kLanes; ++i) y.raw[i] = __builtin_log1p(y.raw[i]);
  return y;
}

/// e^x - 1 for x <= 0, relative error below 3e-7: near 0 the polynomial of exp without its 1.
SLUICE_INLINE VecF expm1_negative(VecF x) {
  const VecF near = x + x * x *
                            detail::polynomial(
                                x,
                                {5.0000001201e-1f,
                                 1.6666665459e-1f,
                                 4.1665795894e-2f,
                                 8.3334519073e-3f,
                                 1.3981999507e-3f,
                                 1.9875691500e-4f});
  const VecF far = exp(x) - VecF::broadcast(1.0f);
  return select_less(x, VecF::broadcast(-0.34657359f), far, near);
}

SLUICE_INLINE VecD expm1_negative(VecD x) {
  for (int i = 0; i < VecD::kLanes; ++i) x.raw[i] = __builtin_expm1(x.raw[i]);
  return x;
}

/// 1 / (1 + e^-x) and its complement, both with full relative accuracy.
template <class T>
struct SigmoidPair {
  Vec<T> value, complement;
};

template <class T>
SLUICE_INLINE SigmoidPair<T> sigmoid_pair(Vec<T> x) {
  const Vec<T> one = Vec<T>::broadcast(T(1));
  const Vec<T> e = exp(-abs(x));
  const Vec<T> large = one / (one + e);
  const Vec<T> small = e * large;
  const Vec<T> zero = Vec<T>::zero();
  return {select_less(x, zero, small, large), select_less(x, zero, large, small)};
}

template <class T>
SLUICE_INLINE Vec<T> sigmoid(Vec<T> x) {
  return sigmoid_pair(x).value;
}

/// log(1 + e^x) without overflow, accurate in both tails.
template <class T>
SLUICE_INLINE Vec<T> softplus(Vec<T> x) {
  return at_least(x, 0) + log1p_unit(exp(-abs(x)));
}

/// The upper tail of the normal distribution and its density times sqrt(2 pi), at 0 <= z <= 40.
template <class T>
struct NormalTail {
  Vec<T> tail;     // 1 - Phi(z)
  Vec<T> density;  // e^(-z^2 / 2)
};

/// Relative error below 1e-6: own minimax fit of (1 - Phi(z)) e^(z^2/2) / t, t = 1 / (1 + z / 4),
/// over z in [0, 6], where beyond it the tail is below 1e-9. The form follows Abramowitz and Stegun
/// 26.2.17.
SLUICE_INLINE NormalTail<float> normal_tail(VecF z) {
  const VecF one = VecF::broadcast(1.0f);
  const VecF t = one / (one + z * VecF::broadcast(0.25f));
  const VecF density = exp(z * z * VecF::broadcast(-0.5f));
  const VecF ratio = t * detail::polynomial(
                             t,
                             {0.09839873760938644f,
                              0.11573545634746552f,
                              0.012771201319992542f,
                              0.30235639214515686f,
                              -0.287425696849823f,
                              0.3518551290035248f,
                              -0.09369117021560669f});
  return {ratio * density, density};
}

SLUICE_INLINE NormalTail<double> normal_tail(VecD z) {
  NormalTail<double> out;
  for (int i = 0; i < VecD::kLanes; ++i) {
    out.tail.raw[i] = 0.5 * __builtin_erfc(z.raw[i] * 0.70710678118654752440);
    out.density.raw[i] = __builtin_exp(z.raw[i] * z.raw[i] * -0.5);
  }
  return out;
}

/// x Phi(x), the exact (erf) form; absolute error below 3e-7 max(1, |x|) in f32.
template <class T>
SLUICE_INLINE Vec<T> gelu(Vec<T> x) {
  const Vec<T> z = at_most(abs(x), 40);  // keeps infinity * 0 out; the tail is 0 long before
  return at_least(x, 0) - z * normal_tail(z).tail;
}

/// d gelu / dx = Phi(x) + x phi(x).
template <class T>
SLUICE_INLINE Vec<T> gelu_slope(Vec<T> x) {
  const Vec<T> zero = Vec<T>::zero();
  const Vec<T> z = at_most(abs(x), 40);
  const NormalTail<T> normal = normal_tail(z);
  const Vec<T> scaled = z * normal.density * Vec<T>::broadcast(T(0.39894228040143267794));
  const Vec<T> negative = normal.tail - scaled;
  return select_less(x, zero, negative, Vec<T>::broadcast(T(1)) - negative);
}

namespace detail {

/// sqrt(2 / pi) (x + 0.044715 x^3) times 2, the argument whose sigmoid is (1 + tanh) / 2.
template <class T>
SLUICE_INLINE Vec<T> gelu_tanh_argument(Vec<T> x) {
  const Vec<T> cubic = Vec<T>::broadcast(T(2 * 0.79788456080286535588 * 0.044715));
  const Vec<T> linear = Vec<T>::broadcast(T(2 * 0.79788456080286535588));
  return x * (cubic * x * x + linear);
}

}  // namespace detail

/// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
template <class T>
SLUICE_INLINE Vec<T> gelu_tanh(Vec<T> x) {
  const Vec<T> bounded = at_least(x, -40);
  return bounded * sigmoid(detail::gelu_tanh_argument(bounded));
}

template <class T>
SLUICE_INLINE Vec<T> gelu_tanh_slope(Vec<T> x) {
  const Vec<T> bounded = at_most(at_least(x, -40), 40);
  const SigmoidPair<T> s = sigmoid_pair(detail::gelu_tanh_argument(bounded));
  const Vec<T> cubic = Vec<T>::broadcast(T(6 * 0.79788456080286535588 * 0.044715));
  const Vec<T> linear = Vec<T>::broadcast(T(2 * 0.79788456080286535588));
  const Vec<T> inner = cubic * bounded * bounded + linear;
  return s.value + bounded * s.value * s.complement * inner;
}

/// x sigmoid(x); 0 at -infinity.
template <class T>
SLUICE_INLINE Vec<T> silu(Vec<T> x) {
  const Vec<T> bounded = at_least(x, sizeof(T) == 4 ? -1e2 : -1e3);
  return bounded * sigmoid(bounded);
}

template <class T>
SLUICE_INLINE Vec<T> silu_slope(Vec<T> x) {
  const double limit = sizeof(T) == 4 ? 1e2 : 1e3;
  const Vec<T> bounded = at_most(at_least(x, -limit), limit);
  const SigmoidPair<T> s = sigmoid_pair(bounded);
  return s.value + bounded * s.value * s.complement;
}

}  // namespace sluice::kernels::SLUICE_ISA
