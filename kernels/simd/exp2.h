// 2^x for softmax: the argument is a score minus the row's maximum, so it is never above 0 and only
// the low end of the range needs care.
#pragma once

#include "kernels/simd/simd.h"

namespace sluice::kernels::SLUICE_ISA {

/// 2^x for x <= 0, exact at 0; 0 below -126; NaN stays NaN. Relative error 9.2e-8 of the degree-5
/// polynomial (least maximum on [-1/2, 1/2] with a constant term of 1) plus rounding.
SLUICE_INLINE VecF exp2_nonpositive(VecF x) {
  using Raw = VecF::Raw;
  using Int __attribute__((vector_size(kVectorBytes))) = int32_t;
  const Raw low = VecF::broadcast(-126.0f).raw;
  const Raw v = low > x.raw ? low : x.raw;  // a NaN fails the comparison and passes through
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the mantissa.
  const Raw magic = VecF::broadcast(12582912.0f).raw;
  const Raw shifted = v + magic;
  const Raw r = v - (shifted - magic);
  Raw p = r * 1.3264729010e-03f + 9.6715125988e-03f;
  p = p * r + 5.5507337373e-02f;
  p = p * r + 2.4022242086e-01f;
  p = p * r + 6.9314697760e-01f;
  p = p * r + 1.0f;
  Int exponent, bits;
  std::memcpy(&exponent, &shifted, sizeof(exponent));
  std::memcpy(&bits, &p, sizeof(bits));
  bits += exponent << 23;
  Raw y;
  std::memcpy(&y, &bits, sizeof(y));
  y = x.raw < low ? Raw{} : y;
  // Adding to the exponent bits of a NaN may carry into a finite number: 0xffffffff to -FLT_MAX.
  return {x.raw == x.raw ? y : x.raw};
}

/// Lane by lane with the C library: f64 is for truth, not for speed.
SLUICE_INLINE Vec<double> exp2_nonpositive(Vec<double> x) {
  for (int i = 0; i < Vec<double>::kLanes; ++i) x.raw[i] = __builtin_exp2(x.raw[i]);
  return x;
}

}  // namespace sluice::kernels::SLUICE_ISA
