// Gamma(alpha, 1) draws in log space and their implicit derivative. Both are functions of plain
// numbers, shared by the kernels of every device; all arithmetic is f64 whatever the dtype.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "engine/context.h"
#include "engine/dtype.h"
#include "engine/philox.h"
#include "kernels/special.h"

namespace sluice::kernels {

/// log of a Gamma(alpha, 1) draw, a pure function of (alpha, key, element) with element < 2^48.
///
/// The Philox counter is element + round * 2^48, so an element's rejections never move another's
/// numbers. Round 0 holds the uniform of the case alpha < 1, where log z = log Gamma(alpha + 1)
/// draw
/// + ln(u) / alpha is never exponentiated: z itself underflows for small alpha. alpha = 0 gives the
/// limit -inf; a negative, infinite or NaN alpha gives NaN.
///
/// Source: Marsaglia, Tsang 2000, "A simple method for generating gamma variables"; its normal is
/// Marsaglia's polar one, which needs no cosine.
constexpr double gamma_log_draw(double alpha, PhiloxKey key, uint64_t element) {
  if (!(alpha > 0) || alpha > std::numeric_limits<double>::max()) {
    return alpha == 0 ? -kInfinity : kNaN;
  }
  constexpr int kRoundShift = 48;
  double log_boost = 0.0;
  double shape = alpha;
  if (alpha < 1.0) {
    const auto word = philox4x32(key, element);
    log_boost = reproducible_log(unit_double(word[0], word[1])) / alpha;
    shape = alpha + 1.0;
  }
  const double d = shape - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  // Three rounds in four accept; the bound only makes termination evident.
  for (uint64_t round = 1; round < (uint64_t{1} << (64 - kRoundShift)); ++round) {
    const auto word = philox4x32(key, element + (round << kRoundShift));
    const double x = (static_cast<double>(static_cast<int32_t>(word[0])) + 0.5) * 0x1p-31;
    const double y = (static_cast<double>(static_cast<int32_t>(word[1])) + 0.5) * 0x1p-31;
    const double s = x * x + y * y;
    if (s >= 1.0) continue;
    const double normal = x * std::sqrt(-2.0 * reproducible_log(s) / s);
    const double root = 1.0 + c * normal;
    if (root <= 0.0) continue;
    const double v = root * root * root;
    const double u = unit_double(word[2], word[3]);
    const double square = normal * normal;
    // The quick test implies the exact one; it saves both logarithms 19 times in 20.
    if (u < 1.0 - 0.0331 * square * square ||
        reproducible_log(u) < 0.5 * square + d * (1.0 - v + reproducible_log(v))) {
      return reproducible_log(d * v) + log_boost;
    }
  }
  return reproducible_log(d) + log_boost;
}

// Expansion of the derivative for large alpha. Moving alpha at a fixed value of the distribution
// function carries log z = y along with speed m, so the density g(y) = e^(a y - e^y) / Gamma(a)
// obeys d/da g + d/dy (g m) = 0. With t = log(z / a) that reads
//   m' + a (1 - e^t) m + t + ln a - psi(a) = 0,
// and m = sum_n m_n(t) / a^(n+1) gives m_0 = t / (e^t - 1), m_n = (m_(n-1)' + c_n) / (e^t - 1),
// where ln a - psi(a) = sum_n c_n / a^n. Every m_n is regular at t = 0, so c_n only removes the
// constant.
inline constexpr int kExpansionOrders = 6;
inline constexpr int kExpansionDegree = 16;
using GammaExpansion = std::array<std::array<double, kExpansionDegree>, kExpansionOrders>;

/// Taylor coefficients in t of m_0 .. m_5; they shrink by about 2 pi per degree.
constexpr GammaExpansion gamma_expansion() {
  // A derivative and a division by t cost two coefficients per order.
  constexpr int kTerms = kExpansionDegree + 2 * kExpansionOrders;
  std::array<double, kTerms> divisor{};  // (e^t - 1) / t
  double factorial = 1.0;
  for (int j = 0; j < kTerms; ++j) divisor[j] = 1.0 / (factorial *= j + 1);

  GammaExpansion table{};
  std::array<double, kTerms> numerator{1.0};
  for (int n = 0, terms = kTerms; n < kExpansionOrders; ++n, terms -= 2) {
    std::array<double, kTerms> quotient{};
    for (int j = 0; j < terms; ++j) {
      quotient[j] = numerator[j];
      for (int i = 0; i < j; ++i) quotient[j] -= quotient[i] * divisor[j - i];
    }
    for (int j = 0; j < kExpansionDegree; ++j) table[n][j] = quotient[j];
    for (int j = 0; j + 2 < terms; ++j) numerator[j] = (j + 2) * quotient[j + 2];
  }
  return table;
}
inline constexpr GammaExpansion kGammaExpansion = gamma_expansion();

/// m(alpha, z) = d log z / d alpha at a fixed value of the Gamma(alpha, 1) distribution function,
/// = -(dP(alpha, z) / d alpha) / (z * density(z)). Relative error below 1e-11.
///
/// Small z: series of P; large z: continued fraction of Q = 1 - P by the modified Lentz method,
/// each with its derivative carried along; alpha >= 32 with z within a factor e of it: the
/// expansion above (error 4e-12 there), because the others would need about sqrt(alpha) steps and
/// more.
///
/// Source: Figurnov, Mohamed, Mnih 2018, arXiv:1805.08498 (implicit reparameterisation).
constexpr double gamma_log_derivative(double alpha, double log_z) {
  if (!(alpha > 0) || log_z != log_z) return kNaN;
  constexpr double kExpandFrom = 32.0;
  constexpr int kMaxSteps = 10000;  // never reached: at most some 300 are taken
  constexpr double kConverged = 1e-16;
  if (alpha >= kExpandFrom) {
    const double t = log_z - reproducible_log(alpha);
    if (t >= -1.0 && t <= 1.0) {
      double sum = 0.0;
      for (int n = kExpansionOrders - 1; n >= 0; --n) {
        double order = 0.0;
        for (int j = kExpansionDegree - 1; j >= 0; --j) order = order * t + kGammaExpansion[n][j];
        sum = sum / alpha + order;
      }
      return sum / alpha;
    }
  }

  const double z = reproducible_exp(log_z);  // 0 where it underflows, which leaves the first term
  if (z < alpha + 1.0) {
    // P = z^a e^-z / Gamma(a + 1) * sum_n t_n, t_n = z^n / ((a+1)..(a+n)), dt_n/da = -t_n H_n.
    double term = 1.0, sum = 1.0, harmonic = 0.0, weighted = 0.0;
    for (int n = 1; n < kMaxSteps; ++n) {
      const double inverse = 1.0 / (alpha + n);
      harmonic += inverse;
      term *= z * inverse;
      sum += term;
      weighted += term * harmonic;
      if (term * harmonic <= kConverged * weighted) break;
    }
    return ((digamma(alpha + 1.0) - log_z) * sum + weighted) / alpha;
  }
  if (z == kInfinity) return 0.0;

  // Q = z^a e^-z / Gamma(a) * h; names ending in _a are derivatives with respect to alpha.
  double b = z + 1.0 - alpha, b_a = -1.0;
  double c = 1e300, c_a = 0.0;
  double d = 1.0 / b, d_a = d * d;
  double h = d, h_a = d_a;
  for (int i = 1; i < kMaxSteps; ++i) {
    const double a = -i * (i - alpha), a_a = i;
    b += 2.0;
    const double w = a * d + b;
    const double w_a = a_a * d + a * d_a + b_a;
    d = 1.0 / w;
    d_a = -w_a * d * d;
    const double ratio = a / c;
    c_a = b_a + (a_a - ratio * c_a) / c;
    c = b + ratio;
    const double step = c * d;
    const double step_a = c_a * d + c * d_a;
    h_a = h_a * step + h * step_a;
    h *= step;
    // At an integer alpha the value stops moving early (a = 0) while its derivative still does.
    const double value_move = step > 1.0 ? step - 1.0 : 1.0 - step;
    const double derivative_move = h * step_a > 0 ? h * step_a : -h * step_a;
    if (value_move <= kConverged && derivative_move <= kConverged * (h_a > 0 ? h_a : -h_a)) break;
  }
  return (log_z - digamma(alpha)) * h + h_a;
}

/// log_z[i] = gamma_log_draw(alpha[i], key, i); not differentiable in the key.
struct GammaLogSample {
  const void* alpha;  // (count)
  double* log_z;      // (count), kept in f64: the derivative needs the exact draw
  DType dtype;        // of alpha
  int64_t count;
  PhiloxKey key;
};
void gamma_log_sample(CpuContext& context, const GammaLogSample& args);

/// grad_alpha[i] = grad[i] * gamma_log_derivative(alpha[i], log_z[i])
struct GammaLogSampleBackward {
  const void* alpha;    // (count)
  const double* log_z;  // (count)
  const void* grad;     // (count)
  void* grad_alpha;     // (count)
  DType dtype;          // of alpha, grad and grad_alpha
  int64_t count;
};
void gamma_log_sample_backward(CpuContext& context, const GammaLogSampleBackward& args);

}  // namespace sluice::kernels
