// Philox 4x32-10, a counter-based generator: the numbers are a pure function of
// (seed, stream, counter), so any thread may draw any of them in any order.
#pragma once

#include <array>
#include <cstdint>

namespace sluice {

/// The key of a random stream. `seed` comes from the user; `stream` separates the places that draw
/// (one per layer, one per purpose).
struct PhiloxKey {
  uint64_t seed = 0;
  uint64_t stream = 0;
};

/// Four independent 32-bit words for one counter value.
///
/// The 64-bit seed is the Philox key; the 128-bit Philox counter is (counter, stream).
/// Source: Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3".
constexpr std::array<uint32_t, 4> philox4x32(PhiloxKey key, uint64_t counter) {
  auto low = [](uint64_t v) { return static_cast<uint32_t>(v); };
  auto high = [](uint64_t v) { return static_cast<uint32_t>(v >> 32); };
  uint32_t c0 = low(counter), c1 = high(counter), c2 = low(key.stream), c3 = high(key.stream);
  uint32_t k0 = low(key.seed), k1 = high(key.seed);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = high(p1) ^ c1 ^ k0;
    const uint32_t n2 = high(p0) ^ c3 ^ k1;
    c1 = low(p1);
    c3 = low(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

/// A 32-bit word as a float in (0, 1): the centres of 2^23 equal intervals; never 0 or 1 exactly
/// (with one bit more the topmost centre would round to 1).
constexpr float unit_float(uint32_t word) {
  return (static_cast<float>(word >> 9) + 0.5f) * 0x1p-23f;
}

/// Two words as a double in (0, 1): the centres of 2^52 equal intervals.
constexpr double unit_double(uint32_t high, uint32_t low) {
  const uint64_t bits = (uint64_t{high} << 20) ^ (low >> 12);
  return (static_cast<double>(bits & ((uint64_t{1} << 52) - 1)) + 0.5) * 0x1p-52;
}

}  // namespace sluice
