// log Gamma and its first three derivatives for x > 0: as functions of one number, which the
// Dirichlet kernels share, and as an elementwise kernel.
#pragma once

#include <cstdint>
#include <limits>

#include "engine/context.h"
#include "engine/dtype.h"
#include "kernels/reproducible_math.h"

namespace sluice::kernels {

// All four move x up to at least 10 by recurrence and use Stirling's series there, cut where the
// first term left out is below 1e-16 of the result. Zero gives the limit from the right, a negative
// number or NaN gives NaN, and nothing overflows before the result itself does.
inline constexpr double kStirlingFrom = 10.0;
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// log Gamma(x). Error below 1e-14 * max(1, log Gamma(x)).
constexpr double log_gamma(double x) {
  if (!(x > 0)) return x == 0 ? kInfinity : kNaN;
  if (x > std::numeric_limits<double>::max()) return x;
  double product = 1.0;
  while (x < kStirlingFrom) {
    product *= x;
    x += 1.0;
  }
  const double r = 1.0 / (x * x);
  double series = 1.0 / 156.0;
  series = 691.0 / 360360.0 - r * series;
  series = 1.0 / 1188.0 - r * series;
  series = 1.0 / 1680.0 - r * series;
  series = 1.0 / 1260.0 - r * series;
  series = 1.0 / 360.0 - r * series;
  series = 1.0 / 12.0 - r * series;
  const double half_log_2pi = 0.91893853320467274178;
  return (((x - 0.5) * reproducible_log(x) - x) + half_log_2pi) + series / x -
         reproducible_log(product);
}

/// psi(x), the derivative of log Gamma. Absolute error about 2e-15 near its zero 1.46.
constexpr double digamma(double x) {
  if (!(x > 0)) return x == 0 ? -kInfinity : kNaN;
  double shift = 0.0;
  while (x < kStirlingFrom) {
    shift += 1.0 / x;
    x += 1.0;
  }
  const double r = 1.0 / (x * x);
  double series = 1.0 / 12.0;
  series = 691.0 / 32760.0 - r * series;
  series = 1.0 / 132.0 - r * series;
  series = 1.0 / 240.0 - r * series;
  series = 1.0 / 252.0 - r * series;
  series = 1.0 / 120.0 - r * series;
  series = 1.0 / 12.0 - r * series;
  return (reproducible_log(x) - 0.5 / x - r * series) - shift;
}

/// psi'(x).
constexpr double trigamma(double x) {
  if (!(x > 0)) return x == 0 ? kInfinity : kNaN;
  double shift = 0.0;
  while (x < kStirlingFrom) {
    shift += 1.0 / (x * x);
    x += 1.0;
  }
  const double r = 1.0 / (x * x);
  double series = 7.0 / 6.0;
  series = 691.0 / 2730.0 - r * series;
  series = 5.0 / 66.0 - r * series;
  series = 1.0 / 30.0 - r * series;
  series = 1.0 / 42.0 - r * series;
  series = 1.0 / 30.0 - r * series;
  series = 1.0 / 6.0 - r * series;
  return shift + (1.0 / x + 0.5 * r + r / x * series);
}

/// psi''(x), which is negative.
constexpr double tetragamma(double x) {
  if (!(x > 0)) return x == 0 ? -kInfinity : kNaN;
  double shift = 0.0;
  while (x < kStirlingFrom) {
    shift += 2.0 / (x * x * x);
    x += 1.0;
  }
  const double r = 1.0 / (x * x);
  double series = 35.0 / 2.0;
  series = 691.0 / 210.0 - r * series;
  series = 5.0 / 6.0 - r * series;
  series = 3.0 / 10.0 - r * series;
  series = 1.0 / 6.0 - r * series;
  series = 1.0 / 6.0 - r * series;
  series = 1.0 / 2.0 - r * series;
  return -shift - (r + r / x + r * r * series);
}

enum class SpecialFunction : uint8_t { log_gamma, digamma, trigamma, tetragamma };

/// out[i] = function(x[i]) * (scale ? scale[i] : 1), computed in f64. With the derivative as
/// `function` and the upstream gradient as `scale` this is its own backward.
struct Special {
  SpecialFunction function;
  const void* x;      // (count)
  const void* scale;  // (count) or null
  void* out;          // (count)
  DType dtype;
  int64_t count;
};
void special(CpuContext& context, const Special& args);

}  // namespace sluice::kernels
