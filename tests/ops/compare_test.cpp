#include "ops/compare.h"

#include <cmath>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "tests/support/compare.h"
#include "tests/support/strided.h"

namespace sluice::testing {
namespace {

struct Case {
  const char* name;
  Tensor (*tensors)(const Tensor&, const Tensor&);
  Tensor (*number)(const Tensor&, double);
  bool (*truth)(double, double);
};

const std::vector<Case> kCases = {
    {"equal", ops::equal, ops::equal, [](double a, double b) { return a == b; }},
    {"less", ops::less, ops::less, [](double a, double b) { return a < b; }},
    {"less_equal", ops::less_equal, ops::less_equal, [](double a, double b) { return a <= b; }},
    {"greater", ops::greater, ops::greater, [](double a, double b) { return a > b; }},
    {"greater_equal",
     ops::greater_equal,
     ops::greater_equal,
     [](double a, double b) { return a >= b; }},
};

const std::vector<DType> kAll = {
    DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u8};

TEST(Compare, EveryDTypeAndBroadcast) {
  for (const Case& c : kCases) {
    for (const DType dtype : kAll) {
      const Tensor a = counting({5, 3}, dtype);  // 0 .. 14
      const Tensor b = to_dtype(from_values(std::vector<double>{6, 1, 14}, {3}), dtype);
      const Tensor out = c.tensors(a, b);
      const auto mask = out.to_vector<uint8_t>();
      const auto left = values_of(a), right = values_of(b);
      for (size_t i = 0; i < 15; ++i) {
        EXPECT_EQ(mask[i], c.truth(left[i], right[i % 3])) << c.name << " " << name_of(dtype);
      }
      EXPECT_TRUE(bit_equal(c.tensors(strided(a), b), out));
      EXPECT_TRUE(bit_equal(c.number(a, 7), c.tensors(a, full({}, 7, {dtype, {}}))));
    }
  }
}

TEST(Compare, LongRunsAndThreads) {
  const Tensor a = normal({70001}), b = normal({70001}, 1);
  for (const Case& c : kCases) {
    const auto mask = c.tensors(a, b).to_vector<uint8_t>();
    const auto left = values_of(a), right = values_of(b);
    for (size_t i = 0; i < mask.size(); ++i) ASSERT_EQ(mask[i], c.truth(left[i], right[i]));
  }
}

TEST(Compare, NumbersBetweenIntegersAndRoundedFloats) {
  const Tensor i = counting({4}, DType::i32);
  EXPECT_EQ(ops::less(i, 1.5).to_vector<uint8_t>(), (std::vector<uint8_t>{1, 1, 0, 0}));
  EXPECT_EQ(ops::equal(i, 1.5).to_vector<uint8_t>(), (std::vector<uint8_t>{0, 0, 0, 0}));
  EXPECT_EQ(ops::greater(counting({2}, DType::u8), -1.0).to_vector<uint8_t>()[0], 1);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    EXPECT_EQ(ops::equal(full({1}, 0.1, {dtype, {}}), 0.1).item<uint8_t>(), 1);
  }
}

TEST(Compare, NaNAndEmpty) {
  for (const Case& c : kCases) {
    EXPECT_EQ(c.number(full({1}, NAN), 0.0).item<uint8_t>(), 0) << c.name;
    EXPECT_EQ(c.number(full({1}, 0.0), NAN).item<uint8_t>(), 0) << c.name;
    EXPECT_EQ(c.number(zeros({0, 3}), 1).shape(), (Shape{0, 3}));
  }
}

TEST(Compare, IsNotRecorded) {
  const Tensor x = autograd::set_requires_grad(normal({3}));
  EXPECT_FALSE(autograd::requires_grad(ops::less(x, 0.0)));
}

TEST(Compare, Throws) {
  for (const Case& c : kCases) {
    const std::string op = std::string(c.name) + ": ";
    SLUICE_EXPECT_THROW(
        c.tensors(zeros({2}), zeros({3})), ShapeError, op + "shapes must broadcast");
    SLUICE_EXPECT_THROW(c.tensors(zeros({2}), counting({2})), DTypeError, op);
    SLUICE_EXPECT_THROW(c.tensors({}, zeros({2})), ArgumentError, op);
    SLUICE_EXPECT_THROW(c.tensors(zeros({2}), {}), ArgumentError, op);
    SLUICE_EXPECT_THROW(c.number({}, 1), ArgumentError, op + "a must be a tensor");
  }
}

}  // namespace
}  // namespace sluice::testing
