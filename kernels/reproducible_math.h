// log and exp in f64 made of additions, multiplications and divisions only. Those are rounded alike
// everywhere, so, compiled without contraction, a sampler built on them draws the same bits on
// every CPU and GPU; a C library does not promise that. Also usable in constant expressions.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace sluice::kernels {

// ln 2 in two parts; the upper one has 32 significant bits, so its product with an exponent is
// exact.
inline constexpr double kLn2High = 0x1.62e42feep-1;
inline constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

/// Natural logarithm, within 1 unit in the last place. 0 -> -inf, negative -> NaN, inf -> inf.
///
/// x = 2^e * m with m in [sqrt(1/2), sqrt(2)), s = (m - 1) / (m + 1), log m = 2 atanh(s); the sum
/// is arranged as in fdlibm's e_log.c, with the plain Taylor coefficients of atanh to s^23.
constexpr double reproducible_log(double x) {
  if (!(x > 0))
    return x == 0 ? -std::numeric_limits<double>::infinity()
                  : std::numeric_limits<double>::quiet_NaN();
  if (x > std::numeric_limits<double>::max()) return x;
  int exponent = -1023;
  if (x < std::numeric_limits<double>::min()) {
    x *= 0x1p54;
    exponent -= 54;
  }
  const auto bits = std::bit_cast<uint64_t>(x);
  exponent += static_cast<int>(bits >> 52);
  double m = std::bit_cast<double>((bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double f = m - 1.0;
  const double s = f / (m + 1.0);
  const double z = s * s;
  double r = 2.0 / 23.0;
  r = r * z + 2.0 / 21.0;
  r = r * z + 2.0 / 19.0;
  r = r * z + 2.0 / 17.0;
  r = r * z + 2.0 / 15.0;
  r = r * z + 2.0 / 13.0;
  r = r * z + 2.0 / 11.0;
  r = r * z + 2.0 / 9.0;
  r = r * z + 2.0 / 7.0;
  r = r * z + 2.0 / 5.0;
  r = r * z + 2.0 / 3.0;
  r = r * z;
  const double half_square = 0.5 * f * f;
  const auto e = static_cast<double>(exponent);
  return e * kLn2High - ((half_square - (s * (half_square + r) + e * kLn2Low)) - f);
}

/// e^x, within 2 units in the last place; below -745.2 it is 0, above 709.8 infinity.
///
/// x = k ln 2 + r with |r| <= ln(2)/2, then the Taylor polynomial of degree 13 and the scale 2^k in
/// two factors, since either alone may overflow or underflow.
constexpr double reproducible_exp(double x) {
  if (x != x) return x;
  if (x > 709.782712893384) return std::numeric_limits<double>::infinity();
  if (x < -745.2) return 0.0;
  const int k = static_cast<int>(x * 1.4426950408889634 + (x < 0 ? -0.5 : 0.5));
  const double r = (x - k * kLn2High) - k * kLn2Low;
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * (r * r) + r + 1.0;
  const int half = k / 2;
  const auto power = [](int n) {
    return std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52);
  };
  return p * power(half) * power(k - half);
}

}  // namespace sluice::kernels
