// Random cases that can be repeated one by one: every draw is a function of a seed and the number
// of the case.
#pragma once

#include <cstdlib>
#include <initializer_list>
#include <iostream>
#include <string>

#include <gtest/gtest.h>

#include "engine/philox.h"

namespace sluice::testing {

/// Draws of one case.
class Random {
 public:
  Random(uint64_t seed, uint64_t stream) : key_{seed, stream} {}

  uint64_t bits() {
    const auto words = philox4x32(key_, counter_++);
    return uint64_t{words[1]} << 32 | words[0];
  }
  /// In [first, last]; what the remainder favours does not matter here.
  int64_t between(int64_t first, int64_t last) {
    return first + int64_t(bits() % uint64_t(last - first + 1));
  }
  /// In [0, count).
  size_t below(size_t count) { return size_t(bits() % count); }
  bool chance(double probability) { return double(bits() >> 11) * 0x1p-53 < probability; }
  template <class List>
  auto pick(const List& list) {
    return list.begin()[below(list.size())];
  }
  template <class T>
  T pick(std::initializer_list<T> list) {
    return list.begin()[below(list.size())];
  }

 private:
  PhiloxKey key_;
  uint64_t counter_ = 0;
};

inline uint64_t number_from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// body(random) for cases 0 .. count - 1, up to the first that fails. SLUICE_FUZZ_SEED takes the
/// place of the seed 1, SLUICE_FUZZ_CASE runs one case alone; a failure names both. True when all
/// cases ran, so that what must hold for their total can be expected.
template <class Body>
bool for_each_fuzz_case(uint64_t count, Body&& body) {
  const uint64_t seed = number_from_environment("SLUICE_FUZZ_SEED", 1);
  const uint64_t only = number_from_environment("SLUICE_FUZZ_CASE", count);
  std::cout << "SLUICE_FUZZ_SEED=" << seed << std::endl;  // a crash shows no more than this
  const auto run = [&](uint64_t number) {
    SCOPED_TRACE(
        "SLUICE_FUZZ_SEED=" + std::to_string(seed) + " SLUICE_FUZZ_CASE=" + std::to_string(number));
    Random random(seed, number);
    body(random);
  };
  if (only < count) {
    run(only);
    return false;
  }
  for (uint64_t number = 0; number < count; ++number) {
    run(number);
    if (::testing::Test::HasFailure()) return false;
  }
  return true;
}

}  // namespace sluice::testing
