// Philox against the published vectors, and what is made from its words.
#include "engine/philox.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "engine/context.h"
#include "engine/tensor.h"
#include "tests/support/compare.h"

namespace sluice {
namespace {

using Words = std::array<uint32_t, 4>;

// File kat_vectors of the Random123 distribution, lines "philox4x32 10".
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0}, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(
      philox4x32({UINT64_MAX, UINT64_MAX}, UINT64_MAX),
      (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // Digits of pi: counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0.
  EXPECT_EQ(
      philox4x32({0x299f31d0a4093822, 0x0370734413198a2e}, 0x85a308d3243f6a88),
      (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  static_assert(philox4x32({0, 0}, 0)[0] == 0x6627e8d5);
}

TEST(Philox, UnitNumbersNeverReachTheEnds) {
  EXPECT_EQ(unit_float(0), 0x1p-24f);
  EXPECT_EQ(unit_float(UINT32_MAX), 1.0f - 0x1p-24f);
  EXPECT_EQ(unit_float(0x80000000u), 0.5f + 0x1p-24f);
  EXPECT_EQ(unit_double(0, 0), 0x1p-53);
  EXPECT_EQ(unit_double(UINT32_MAX, UINT32_MAX), 1.0 - 0x1p-53);
  EXPECT_EQ(unit_double(0x80000000u, 0), 0.5 + 0x1p-53);
  EXPECT_EQ(unit_double(1, 0), 0x1p-32 + 0x1p-53);
}

TEST(RandomTensor, IsAFunctionOfKeyAndIndexOnly) {
  ThreadPool pool(3);
  CpuContext context{pool};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const Tensor large = randn({3, 40'000}, 5, 7, {dtype, {}});
    {
      const ContextScope scope(context);
      EXPECT_TRUE(testing::bit_equal(randn({3, 40'000}, 5, 7, {dtype, {}}), large));
    }
    const Tensor small = randn({1000}, 5, 7, {dtype, {}});
    EXPECT_TRUE(testing::bit_equal(large.alias({1000}, {1}, 0), small));
    EXPECT_NE(testing::values_of(randn({9}, 6, 7)), testing::values_of(randn({9}, 5, 7)));
    EXPECT_NE(testing::values_of(randn({9}, 5, 8)), testing::values_of(randn({9}, 5, 7)));
  }
}

TEST(RandomTensor, MomentsMatch) {
  // Fixed seed; bounds are five standard errors, a false alarm of about 1e-6 for another seed.
  const int64_t count = 400'000;
  const auto check = [&](const Tensor& x, double mean, double variance, double fourth) {
    double sum = 0, squares = 0;
    for (const double value : testing::values_of(x)) {
      sum += value;
      squares += (value - mean) * (value - mean);
    }
    const double n = double(count);
    EXPECT_NEAR(sum / n, mean, 5 * std::sqrt(variance / n));
    EXPECT_NEAR(squares / n, variance, 5 * std::sqrt((fourth - variance * variance) / n));
  };
  check(randn({count}, 1, 2, {DType::f64, {}}), 0.0, 1.0, 3.0);
  check(rand({count}, 1, 2, {DType::f64, {}}), 0.5, 1.0 / 12, 1.0 / 80);
}

TEST(RandomTensor, RefusesIntegers) {
  SLUICE_EXPECT_THROW(
      randn({2}, 1, 0, {DType::i32, {}}), DTypeError, "randn: dtype must be floating");
  SLUICE_EXPECT_THROW(rand({2}, 1, 0, {DType::u8, {}}), DTypeError, "rand: dtype must be floating");
}

}  // namespace
}  // namespace sluice
