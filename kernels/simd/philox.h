// The generator of engine/philox.h on a register of counters.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "engine/philox.h"
#include "kernels/simd/simd.h"

namespace sluice::kernels::SLUICE_ISA {

/// One counter per 64-bit lane.
inline constexpr int kPhiloxLanes = kVectorBytes / 8;
using Words __attribute__((vector_size(kVectorBytes))) = uint64_t;

/// Product of the low halves of each lane. GCC 12 would make a 64-bit multiplication of it, which
/// takes three instructions.
SLUICE_INLINE Words multiply_low(Words a, Words b) {
#if defined(__AVX512F__)
  return (Words)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (Words)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (Words)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

/// words[4 * i + j] = philox4x32(key, first + i)[j] for i < kPhiloxLanes. The upper halves of the
/// lanes hold leftovers that no multiplication reads.
SLUICE_INLINE void philox_words(PhiloxKey key, uint64_t first, uint32_t* words) {
  Words c0, c1, c2, c3;
  for (int i = 0; i < kPhiloxLanes; ++i) c0[i] = first + uint64_t(i);
  c1 = c0 >> 32;
  c2 = Words{} + key.stream;
  c3 = c2 >> 32;
  auto k0 = uint32_t(key.seed), k1 = uint32_t(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const Words p0 = multiply_low(Words{} + uint64_t{0xD2511F53u}, c0);
    const Words p1 = multiply_low(Words{} + uint64_t{0xCD9E8D57u}, c2);
    c0 = (p1 >> 32) ^ c1 ^ (Words{} + k0);
    c1 = p1;
    c2 = (p0 >> 32) ^ c3 ^ (Words{} + k1);
    c3 = p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const Words low = (c0 & 0xffffffffu) | (c1 << 32);
  const Words high = (c2 & 0xffffffffu) | (c3 << 32);
  for (int i = 0; i < kPhiloxLanes; ++i) {
    const uint64_t pair[2] = {low[i], high[i]};
    std::memcpy(words + 4 * i, pair, sizeof(pair));
  }
}

}  // namespace sluice::kernels::SLUICE_ISA
