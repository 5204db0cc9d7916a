// The gamma function's family and the implicit derivative of gamma draws from their definitions, in
// long double: nothing here shares a formula with the kernels.
#pragma once

#include <cmath>
#include <functional>

namespace sluice::reference {

/// Integral over [0, inf) of a smooth function that decays at least exponentially, by the
/// double-exponential rule y = exp(pi/2 sinh s): trapezoids in s converge like exp(-c / step).
inline long double half_line_integral(const std::function<long double(long double)>& f) {
  constexpr long double kStep = 1.0L / 128;
  long double sum = 0;
  for (int i = -640; i <= 400; ++i) {
    const long double s = i * kStep;
    const long double y = expl(1.5707963267948966L * sinhl(s));
    const long double value = f(y) * y * 1.5707963267948966L * coshl(s);
    if (std::isfinite(value)) sum += value;
  }
  return sum * kStep;
}

/// psi(x) = ln x + integral of (1/y - 1/(1 - e^-y)) e^(-x y); x is moved above 2 first, where the
/// integrand is tame.
inline long double digamma(long double x) {
  long double shift = 0;
  for (; x < 2; x += 1) shift += 1 / x;
  const auto kernel = [&](long double y) {
    const long double gap = y < 1e-4L ? -0.5L - y / 12 : 1 / y + 1 / expm1l(-y);
    return gap * expl(-x * y);
  };
  return logl(x) + half_line_integral(kernel) - shift;
}

/// psi^(n)(x) = (-1)^(n+1) integral of y^n e^(-x y) / (1 - e^-y), n = 1 or 2.
inline long double polygamma(int n, long double x) {
  long double shift = 0;
  for (; x < 2; x += 1) shift += n == 1 ? 1 / (x * x) : 2 / (x * x * x);
  const auto kernel = [&](long double y) { return powl(y, n) * expl(-x * y) / -expm1l(-y); };
  return (half_line_integral(kernel) + shift) * (n == 1 ? 1 : -1);
}

/// d log z / d alpha at a fixed value of the Gamma(alpha, 1) distribution function,
///   m = -integral over s < z of (ln s - psi(alpha)) density(s) ds / (z density(z)),
/// or the same integral over s > z with the opposite sign; s = z e^(-+y) turns either into one over
/// [0, inf) that holds no gamma function.
inline double gamma_log_derivative(double alpha, double log_z) {
  const long double a = alpha;
  const long double z = expl(log_z);
  const long double centre = log_z - digamma(a);
  const long double sign = z < a ? -1 : 1;
  // Both integrals decay over 1 / max(alpha, sqrt(alpha), z): in units of that they are tame.
  const long double unit = 1 / (sqrtl(a + z) + fabsl(z - a) + (a < 1 ? a : 0));
  const auto kernel = [&](long double scaled) {
    const long double y = scaled * unit;
    return (centre + sign * y) * expl(sign * a * y - z * expm1l(sign * y)) * unit;
  };
  return double(sign * half_line_integral(kernel));
}

}  // namespace sluice::reference
