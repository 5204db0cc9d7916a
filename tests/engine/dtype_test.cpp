// Conversions between element types against definitions that share no code with them.
#include "engine/dtype.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "engine/tensor.h"

namespace sluice {
namespace {

double value_of_bits(uint32_t bits) {
  return double(float(std::bit_cast<bfloat16>(uint16_t(bits))));
}

// Nearest by distance, ties to even bits, found among the two neighbours of a truncation.
uint16_t nearest_bfloat16(double value) {
  if (value == 0) return std::signbit(value) ? 0x8000 : 0;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(value);
  uint32_t low = 0;  // largest finite with value_of_bits(low) <= magnitude
  uint32_t high = 0x7f80;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (value_of_bits(middle) <= magnitude ? low : high) = middle;
  }
  // Beyond the largest finite number the next one, 2^128, stands for infinity.
  const double above = high == 0x7f80 ? std::ldexp(1.0, 128) : value_of_bits(high);
  const double down = magnitude - value_of_bits(low);
  const double up = above - magnitude;
  const bool round_up = up < down || (up == down && low % 2 == 1);
  return sign | static_cast<uint16_t>(round_up ? high : low);
}

TEST(BFloat16, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto value = std::bit_cast<bfloat16>(uint16_t(bits));
    if (std::isnan(float(value))) {
      EXPECT_TRUE(std::isnan(float(bfloat16(float(value))))) << bits;
      EXPECT_TRUE(std::isnan(float(bfloat16(double(float(value)))))) << bits;
    } else {
      EXPECT_EQ(bfloat16(float(value)).bits, bits);
      EXPECT_EQ(bfloat16(double(float(value))).bits, bits);
    }
  }
}

TEST(BFloat16, RoundsToNearestEven) {
  // Around every 37th value: just beside and exactly at the tie above it.
  for (uint32_t bits = 1; bits < 0x7f80; bits += 37) {
    const double low = value_of_bits(bits);
    const double high = bits + 1 == 0x7f80 ? std::ldexp(1.0, 128) : value_of_bits(bits + 1);
    const double tie = low + (high - low) / 2;
    for (const double sign : {1.0, -1.0}) {
      for (const double exact : {low, tie, low + (high - low) / 4}) {
        ASSERT_EQ(bfloat16(float(sign * exact)).bits, nearest_bfloat16(float(sign * exact)));
      }
      // A double beside the tie rounds to f32 exactly onto the tie, and from there the wrong way.
      for (const double exact : {tie, std::nextafter(tie, 0.0), std::nextafter(tie, INFINITY)}) {
        ASSERT_EQ(bfloat16(sign * exact).bits, nearest_bfloat16(sign * exact)) << exact;
      }
    }
  }
}

TEST(BFloat16, SpecialValues) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(bfloat16(inf).bits, 0x7f80);
  EXPECT_EQ(bfloat16(-inf).bits, 0xff80);
  EXPECT_EQ(bfloat16(double(inf)).bits, 0x7f80);
  EXPECT_EQ(bfloat16(1e300).bits, 0x7f80);
  EXPECT_EQ(bfloat16(-1e300).bits, 0xff80);
  EXPECT_EQ(bfloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(bfloat16(-0.0f).bits, 0x8000);
  EXPECT_EQ(bfloat16(1e-300).bits, 0);
  EXPECT_EQ(bfloat16(-1e-300).bits, 0x8000);
  // A NaN whose upper half alone would read as infinity.
  EXPECT_TRUE(std::isnan(float(bfloat16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(float(bfloat16(std::numeric_limits<double>::quiet_NaN()))));
}

TEST(Convert, FloatsToIntegersSaturate) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(convert<int32_t>(2.9), 2);
  EXPECT_EQ(convert<int32_t>(-2.9f), -2);
  EXPECT_EQ(convert<int32_t>(1e10), INT32_MAX);
  EXPECT_EQ(convert<int32_t>(-inf), INT32_MIN);
  EXPECT_EQ(convert<int32_t>(std::nan("")), 0);
  EXPECT_EQ(convert<int64_t>(9.3e18), INT64_MAX);
  EXPECT_EQ(convert<int64_t>(-9.3e18), INT64_MIN);
  EXPECT_EQ(convert<uint8_t>(-0.5), 0);
  EXPECT_EQ(convert<uint8_t>(-7.0f), 0);
  EXPECT_EQ(convert<uint8_t>(bfloat16(300.0f)), 255);
}

TEST(Convert, IntegersToFloatsRoundOnce) {
  EXPECT_EQ(convert<float>(int64_t{16'777'217}), 16'777'216.0f);
  EXPECT_EQ(convert<double>(INT64_MAX), 0x1p63);
  // 2^25 + 2^17 + 1 lies just above a bf16 tie; f32 would drop the 1 and round down to 2^25.
  EXPECT_EQ(float(convert<bfloat16>((1 << 25) + (1 << 17) + 1)), float((1 << 25) + (1 << 18)));
  // Beside the ties at 2^60 + 2^52 and 2^60 + 3 * 2^52, where f64 would drop the 1.
  const int64_t one = int64_t{1} << 60, tie = int64_t{1} << 52;
  for (const int64_t sign : {1, -1}) {
    const auto converted = [&](int64_t value) { return float(convert<bfloat16>(sign * value)); };
    EXPECT_EQ(converted(one + tie + 1), float(sign * (one + 2 * tie)));
    EXPECT_EQ(converted(one + tie), float(sign * one));
    EXPECT_EQ(converted(one + tie - 1), float(sign * one));
    EXPECT_EQ(converted(one + 3 * tie - 1), float(sign * (one + 2 * tie)));
    EXPECT_EQ(converted(one + 3 * tie), float(sign * (one + 4 * tie)));
  }
  EXPECT_EQ(float(convert<bfloat16>(INT64_MAX)), 0x1p63f);
  EXPECT_EQ(float(convert<bfloat16>(INT64_MIN)), -0x1p63f);
}

TEST(Convert, TensorsOfAllPairs) {
  const DType all[] = {DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u8};
  const Tensor source = from_values<int32_t>({0, 1, 2, 3, 100, 255}, {2, 3});
  for (const DType from : all) {
    const Tensor x = to_dtype(source, from);
    for (const DType to : all) {
      const Tensor y = to_dtype(x.alias({3, 2}, {1, 3}, 0), to);
      EXPECT_EQ(y.dtype(), to);
      EXPECT_EQ(
          to_dtype(y, DType::i32).to_vector<int32_t>(),
          (std::vector<int32_t>{0, 3, 1, 100, 2, 255}))
          << name_of(from) << " to " << name_of(to);
    }
    EXPECT_TRUE(to_dtype(x, from).same_as(x));
  }
}

TEST(DType, SizesAndNamesAgreeWithTheTypes) {
  const auto check = []<class T>(T, const char* name) {
    EXPECT_EQ(size_of(dtype_of<T>()), sizeof(T));
    EXPECT_EQ(name_of(dtype_of<T>()), name);
    dispatch_any(dtype_of<T>(), []<class U>() { EXPECT_TRUE((std::is_same_v<T, U>)); });
    EXPECT_EQ(is_floating(dtype_of<T>()), !std::is_integral_v<T>);
  };
  check(float{}, "f32");
  check(bfloat16{}, "bf16");
  check(double{}, "f64");
  check(int32_t{}, "i32");
  check(int64_t{}, "i64");
  check(uint8_t{}, "u8");
}

}  // namespace
}  // namespace sluice
