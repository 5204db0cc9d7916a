#include "ops/where.h"

#include <cmath>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "ops/binary.h"
#include "ops/compare.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"
#include "tests/support/strided.h"

namespace sluice::testing {
namespace {

Tensor mask(const Shape& shape) { return ops::less(normal(shape, 9), 0.0); }

TEST(Where, TakesTheRightSideInEveryDType) {
  for (const DType dtype :
       {DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u8}) {
    for (const Shape& shape : std::vector<Shape>{{1}, {3, 7}, {2, 3, 50}, {0, 2}}) {
      const Tensor condition = mask(shape);
      const Tensor a = counting(shape, dtype), b = to_dtype(full(shape, 77), dtype);
      const auto chosen = condition.to_vector<uint8_t>();
      const auto left = values_of(a);
      std::vector<double> expected;
      for (size_t i = 0; i < chosen.size(); ++i) expected.push_back(chosen[i] ? left[i] : 77);
      EXPECT_EQ(values_of(ops::where(condition, a, b)), expected) << name_of(dtype);
      EXPECT_EQ(values_of(ops::where(strided(condition), a, strided(b))), expected);
      EXPECT_EQ(
          values_of(ops::where(condition, strided(a), to_dtype(full({}, 77), dtype))), expected);
    }
  }
}

// Any nonzero byte is true, as in masks that were cast from numbers.
TEST(Where, AnyNonzeroByteIsTrue) {
  const Tensor condition = from_values(std::vector<uint8_t>{0, 1, 2, 255}, {4});
  EXPECT_EQ(
      values_of(ops::where(condition, full({4}, 1), full({4}, 0))),
      (std::vector<double>{0, 1, 1, 1}));
}

TEST(Where, Gradients) {
  struct Case {
    Shape condition, a, b;
  };
  for (const Case& c : std::vector<Case>{
           {{3, 5}, {3, 5}, {3, 5}},
           {{3, 1}, {5}, {2, 3, 5}},
           {{5}, {}, {3, 1}},
           {{2, 3, 5}, {1}, {3, 5}}}) {
    const Tensor condition = mask(c.condition);
    EXPECT_TRUE(gradcheck_passes(
        [&](const std::vector<Tensor>& x) {
          return std::vector{ops::where(condition, x[0], x[1])};
        },
        {normal(c.a), normal(c.b, 1)}));
  }
}

// The classic trap: a masked NaN must not reach the gradient as NaN * 0.
TEST(Where, TheOtherSideGetsZeroEvenIfNaN) {
  const Tensor a = autograd::set_requires_grad(full({2}, NAN));
  const Tensor b = autograd::set_requires_grad(full({2}, 1.0));
  const Tensor condition = from_values(std::vector<uint8_t>{0, 0}, {2});
  autograd::backward(ops::where(condition, a, b), full({2}, 1.0));
  EXPECT_EQ(values_of(autograd::grad(a)), (std::vector<double>{0, 0}));
  EXPECT_EQ(values_of(autograd::grad(b)), (std::vector<double>{1, 1}));
}

TEST(Where, DTypesAndThreads) {
  const Tensor condition = mask({7, 6001});
  const auto function = [&](const std::vector<Tensor>& x) {
    return std::vector{ops::where(condition, x[0], x[1])};
  };
  expect_dtypes_agree(function, {normal({7, 6001}), normal({7, 1}, 1)}, 6001);
  expect_same_bits_for_any_threads(function, {normal({7, 6001}), normal({7, 1}, 1)});
}

TEST(Where, Throws) {
  const Tensor condition = mask({2}), x = zeros({2});
  SLUICE_EXPECT_THROW(ops::where(x, x, x), DTypeError, "condition must be u8, got f32");
  SLUICE_EXPECT_THROW(
      ops::where(condition, x, counting({2})), DTypeError, "b must be f32, got f64");
  SLUICE_EXPECT_THROW(ops::where(condition, x, zeros({3})), ShapeError, "where: shapes must");
  SLUICE_EXPECT_THROW(ops::where(mask({3}), x, x), ShapeError, "where: shapes must broadcast");
  SLUICE_EXPECT_THROW(ops::where({}, x, x), ArgumentError, "condition must be a tensor");
  SLUICE_EXPECT_THROW(ops::where(condition, {}, x), ArgumentError, "a must be a tensor");
  SLUICE_EXPECT_THROW(ops::where(condition, x, {}), ArgumentError, "b must be a tensor");
}

}  // namespace
}  // namespace sluice::testing
