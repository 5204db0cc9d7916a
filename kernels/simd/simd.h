// The vector dialect of the CPU kernels: a register of T written with the compiler's vector types.
//
// Kernel sources that end in SLUICE_DISPATCH are compiled once per instruction set (baseline, avx2,
// avx512), each time with SLUICE_ISA naming the namespace, and the launcher picks one at run time.
// Everything such a file instantiates must live in (or be keyed by a type of) that namespace: an
// inline function outside it is one symbol for all objects, and the linker may keep the copy that
// an older CPU cannot execute.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "engine/dtype.h"

#ifndef SLUICE_ISA
#define SLUICE_ISA baseline
#endif

// The few functions below are tiny and hot: inlining keeps them out of the symbol table.
#define SLUICE_INLINE inline __attribute__((always_inline))

namespace sluice::kernels::SLUICE_ISA {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

/// A register of float or double. a * b + c contracts to one fused instruction where there is one.
template <class T>
struct Vec {
  static constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));
  using Raw __attribute__((vector_size(kVectorBytes))) = T;
  Raw raw;

  static SLUICE_INLINE Vec broadcast(T value) { return {value - Raw{}}; }
  static SLUICE_INLINE Vec zero() { return {Raw{}}; }
  SLUICE_INLINE T operator[](int lane) const { return raw[lane]; }

  friend SLUICE_INLINE Vec operator+(Vec a, Vec b) { return {a.raw + b.raw}; }
  friend SLUICE_INLINE Vec operator-(Vec a, Vec b) { return {a.raw - b.raw}; }
  friend SLUICE_INLINE Vec operator*(Vec a, Vec b) { return {a.raw * b.raw}; }
  friend SLUICE_INLINE Vec operator/(Vec a, Vec b) { return {a.raw / b.raw}; }
  SLUICE_INLINE Vec& operator+=(Vec b) { return raw += b.raw, *this; }
  SLUICE_INLINE Vec& operator*=(Vec b) { return raw *= b.raw, *this; }
};

using VecF = Vec<float>;

/// A register of 32-bit words and the 16-bit words that make half of one.
using Wide __attribute__((vector_size(kVectorBytes))) = uint32_t;
using Half __attribute__((vector_size(kVectorBytes / 2))) = uint16_t;

// GCC 12 splits __builtin_convertvector into halves and joins them again; both registers have one
// instruction for it.
SLUICE_INLINE Wide widen(Half half) {
#if defined(__AVX512BW__)
  return (Wide)_mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)half);
#elif defined(__AVX2__)
  return (Wide)_mm256_cvtepu16_epi32((__m128i)half);
#else
  return __builtin_convertvector(half, Wide);
#endif
}

SLUICE_INLINE Half narrow(Wide wide) {
#if defined(__AVX512BW__)
  return (Half)_mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)wide);
#else
  return __builtin_convertvector(wide, Half);
#endif
}

/// kLanes elements from any address; bf16 is widened to float.
template <class T>
SLUICE_INLINE Vec<Accumulator<T>> load(const T* from) {
  using V = Vec<Accumulator<T>>;
  V out;
  if constexpr (std::is_same_v<T, bfloat16>) {
    Half half;
    std::memcpy(&half, from, sizeof(half));
    const Wide wide = widen(half) << 16;
    std::memcpy(&out.raw, &wide, sizeof(wide));
  } else {
    std::memcpy(&out.raw, from, sizeof(out.raw));
  }
  return out;
}

/// kLanes elements to any address; float is rounded to nearest even for bf16.
template <class T>
SLUICE_INLINE void store(T* to, Vec<Accumulator<T>> value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    // The rounding of bfloat16(float) on whole registers: lane by lane it is not vectorised.
    Wide bits;
    std::memcpy(&bits, &value.raw, sizeof(bits));
    const Wide rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const Wide quiet = (bits >> 16) | 0x40u;
    const Half half = narrow((value.raw == value.raw) ? rounded : quiet);
    std::memcpy(to, &half, sizeof(half));
  } else {
    std::memcpy(to, &value.raw, sizeof(value.raw));
  }
}

/// The first `count` < kLanes elements, the rest `fill`.
template <class T>
SLUICE_INLINE Vec<Accumulator<T>> load_partial(
    const T* from, int count, Accumulator<T> fill = Accumulator<T>(0)) {
  auto out = Vec<Accumulator<T>>::broadcast(fill);
  for (int i = 0; i < count; ++i) out.raw[i] = static_cast<Accumulator<T>>(from[i]);
  return out;
}

template <class T>
SLUICE_INLINE void store_partial(T* to, Vec<Accumulator<T>> value, int count) {
  for (int i = 0; i < count; ++i) to[i] = static_cast<T>(value.raw[i]);
}

template <class T>
SLUICE_INLINE Vec<T> max(Vec<T> a, Vec<T> b) {
  return {a.raw > b.raw ? a.raw : b.raw};
}

template <class T>
SLUICE_INLINE Vec<T> min(Vec<T> a, Vec<T> b) {
  return {a.raw < b.raw ? a.raw : b.raw};
}

/// Sum of the lanes, pairwise: the same order on every call.
template <class T>
SLUICE_INLINE T reduce_add(Vec<T> v) {
  T lanes[Vec<T>::kLanes];
  std::memcpy(lanes, &v.raw, sizeof(lanes));
  for (int half = Vec<T>::kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

template <class T>
SLUICE_INLINE T reduce_max(Vec<T> v) {
  T lanes[Vec<T>::kLanes];
  std::memcpy(lanes, &v.raw, sizeof(lanes));
  for (int half = Vec<T>::kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i)
      lanes[i] = lanes[i] > lanes[i + half] ? lanes[i] : lanes[i + half];
  }
  return lanes[0];
}

/// e^x, relative error below 2e-7 in f32; 0 below -86.99, infinity above 88.7, NaN stays NaN.
/// Range reduction by ln 2 in two parts and a polynomial of degree 6 (Cephes expf).
SLUICE_INLINE VecF exp(VecF x) {
  using Raw = VecF::Raw;
  using Int __attribute__((vector_size(kVectorBytes))) = int32_t;
  const Raw low = VecF::broadcast(-87.33654f).raw;
  const Raw high = VecF::broadcast(88.72283f).raw;
  Raw v = x.raw;
  v = v < low ? low : v;  // NaN fails both comparisons and passes through
  v = v > high ? high : v;
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the mantissa.
  const Raw magic = VecF::broadcast(12582912.0f).raw;
  const Raw shifted = v * 1.44269504088896341f + magic;
  const Raw n = shifted - magic;
  Raw r = v - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  Raw p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  Int bits;
  std::memcpy(&bits, &shifted, sizeof(bits));
  // n may be 128 (x near the top), whose power alone overflows: multiply by 2^(n-1) and by 2.
  Int power = (bits - 0x4B400000 + 126) << 23;
  Raw scale;
  std::memcpy(&scale, &power, sizeof(scale));
  Raw y = p * scale * 2.0f;
  const Raw infinity = VecF::broadcast(__builtin_inff()).raw;
  y = x.raw < low ? Raw{} : y;
  y = x.raw > high ? infinity : y;
  y = x.raw != x.raw ? x.raw : y;
  return {y};
}

/// e^x lane by lane with the C library: f64 is for truth, not for speed.
SLUICE_INLINE Vec<double> exp(Vec<double> x) {
  for (int i = 0; i < Vec<double>::kLanes; ++i) x.raw[i] = __builtin_exp(x.raw[i]);
  return x;
}

}  // namespace sluice::kernels::SLUICE_ISA
