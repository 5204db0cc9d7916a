// The functions of kernels/binary.h as functors. V is a register of float or double.
#pragma once

#include "kernels/simd/simd.h"

namespace sluice::kernels::SLUICE_ISA {

struct Add {
  template <class V>
  static SLUICE_INLINE V value(V a, V b) {
    return a + b;
  }
};

struct Sub {
  template <class V>
  static SLUICE_INLINE V value(V a, V b) {
    return a - b;
  }
};

struct Mul {
  template <class V>
  static SLUICE_INLINE V value(V a, V b) {
    return a * b;
  }
};

struct Div {
  template <class V>
  static SLUICE_INLINE V value(V a, V b) {
    return a / b;
  }
};

// max(a, b) of simd.h is b when the two are unordered: right when b is NaN; a NaN in a is put back.
struct Maximum {
  template <class V>
  static SLUICE_INLINE V value(V a, V b) {
    const V larger = max(a, b);
    return {a.raw != a.raw ? a.raw : larger.raw};
  }
};

struct Minimum {
  template <class V>
  static SLUICE_INLINE V value(V a, V b) {
    const V smaller = min(a, b);
    return {a.raw != a.raw ? a.raw : smaller.raw};
  }
};

}  // namespace sluice::kernels::SLUICE_ISA
