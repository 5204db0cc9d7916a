#include "ops/cast.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "ops/binary.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"
#include "tests/support/strided.h"

namespace sluice::testing {
namespace {

const std::vector<DType> kAll = {
    DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u8};

TEST(Cast, SmallIntegersSurviveEveryPairOfDTypes) {
  for (const int64_t count : {0, 1, 15, 64, 200}) {
    for (const DType from : kAll) {
      for (const DType to : kAll) {
        const Tensor x = counting({count}, from);
        const Tensor y = ops::cast(x, to);
        EXPECT_EQ(y.dtype(), to);
        EXPECT_EQ(values_of(y), values_of(x)) << name_of(from) << " to " << name_of(to);
        EXPECT_TRUE(bit_equal(ops::cast(strided(x), to), y));
      }
    }
  }
}

TEST(Cast, RoundsToNearestEvenAsTheEngineDoes) {
  std::vector<float> values = {
      1.00390625f, 1.01171875f, -0.0f, 3e38f, 3.4e38f, INFINITY, -INFINITY, 1e-40f};
  for (int i = 0; i < 100; ++i) values.push_back(std::ldexp(1.0f + float(i) * 0.00371f, i - 50));
  const Tensor x = from_values(values, {int64_t(values.size())});
  EXPECT_TRUE(bit_equal(ops::cast(x, DType::bf16), to_dtype(x, DType::bf16)));
  EXPECT_EQ(float(ops::cast(x, DType::bf16).to_vector<bfloat16>()[0]), 1.0f);
  EXPECT_EQ(float(ops::cast(x, DType::bf16).to_vector<bfloat16>()[1]), 1.015625f);
  const Tensor nan = ops::cast(full({40}, NAN), DType::bf16);
  for (const double value : values_of(nan)) EXPECT_TRUE(std::isnan(value));
}

TEST(Cast, FloatsBecomeIntegersByTruncationAndSaturate) {
  const Tensor x =
      from_values(std::vector<double>{1.9, -1.9, 1e300, -1e300, NAN, 255.5, -0.5}, {7});
  EXPECT_EQ(
      ops::cast(x, DType::i32).to_vector<int32_t>(),
      (std::vector<int32_t>{1, -1, INT32_MAX, INT32_MIN, 0, 255, 0}));
  EXPECT_EQ(
      ops::cast(x, DType::u8).to_vector<uint8_t>(),
      (std::vector<uint8_t>{1, 0, 255, 0, 0, 255, 0}));
  EXPECT_EQ(
      ops::cast(x, DType::i64).to_vector<int64_t>(),
      (std::vector<int64_t>{1, -1, INT64_MAX, INT64_MIN, 0, 255, 0}));
}

TEST(Cast, TheSameDTypeIsNoCopy) {
  const Tensor x = counting({3});
  EXPECT_TRUE(ops::cast(x, DType::f64).same_as(x));
}

TEST(Cast, GradientsAreCastBack) {
  const Tensor x = autograd::set_requires_grad(to_dtype(normal({2, 40}), DType::bf16));
  const Tensor y = ops::mul(ops::cast(x, DType::f32), 3.0);
  autograd::backward(y, full({2, 40}, 0.5));
  const Tensor grad = autograd::grad(x);
  EXPECT_EQ(grad.dtype(), DType::bf16);
  for (const double value : values_of(grad)) EXPECT_EQ(value, 1.5);
  EXPECT_FALSE(autograd::requires_grad(ops::cast(x, DType::i32)));
}

TEST(Cast, SameBitsForAnyThreads) {
  expect_same_bits_for_any_threads(
      [](const std::vector<Tensor>& x) {
        return std::vector{ops::cast(ops::cast(x[0], DType::bf16), DType::f32)};
      },
      {normal({3, 33000})});
}

TEST(Cast, Throws) {
  SLUICE_EXPECT_THROW(ops::cast({}, DType::f32), ArgumentError, "cast: x must be a tensor");
}

}  // namespace
}  // namespace sluice::testing
