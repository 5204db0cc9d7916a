#include "ops/contiguous.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "engine/errors.h"
#include "ops/binary.h"
#include "ops/view.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"
#include "tests/support/strided.h"

namespace sluice::testing {
namespace {

const std::vector<Shape> kShapes = {
    {}, {1}, {3, 5}, {2, 3, 70}, {0, 4}, {4, 33, 2, 65}, {300, 301}};

TEST(Contiguous, CopiesAnyLayoutInEveryDType) {
  for (const Shape& shape : kShapes) {
    for (const DType dtype : {DType::u8, DType::bf16, DType::i32, DType::f32, DType::f64}) {
      const Tensor x = counting(shape, dtype);
      const Tensor y = ops::contiguous(strided(x));
      EXPECT_TRUE(y.contiguous());
      EXPECT_TRUE(bit_equal(y, x, to_string(shape)));
    }
  }
}

// Every order of the axes: whole and ragged tiles of the transposing copy, with axes around them.
TEST(Contiguous, PermutationsInEveryElementSize) {
  const Shape shape = {3, 70, 2, 33};
  std::vector<int> axes = {0, 1, 2, 3};
  do {
    for (const DType dtype : {DType::u8, DType::bf16, DType::i32, DType::i64}) {
      const Tensor x = counting(shape, dtype);
      const Tensor y = ops::permute(x, axes);
      const auto flat = values_of(x);
      std::vector<double> expected;
      for (int64_t i = 0; i < y.numel(); ++i) {
        int64_t rest = i, from = 0;
        for (int axis = 3; axis >= 0; --axis) {
          from += rest % y.size(axis) * y.stride(axis);
          rest /= y.size(axis);
        }
        expected.push_back(flat[size_t(from)]);
      }
      ASSERT_EQ(values_of(ops::contiguous(y)), expected)
          << axes[0] << axes[1] << axes[2] << axes[3];
    }
  } while (std::next_permutation(axes.begin(), axes.end()));
}

TEST(Contiguous, DenseTensorsAreReturnedAsTheyAre) {
  const Tensor x = counting({2, 3});
  EXPECT_TRUE(ops::contiguous(x).same_as(x));
  const Tensor rows = ops::slice(x, 0, 1, 2);
  EXPECT_TRUE(ops::contiguous(rows).same_as(rows));
}

TEST(Contiguous, Gradients) {
  EXPECT_TRUE(gradcheck_passes(
      [](const std::vector<Tensor>& x) {
        return std::vector{ops::contiguous(ops::transpose(ops::mul(x[0], x[0]), 0, 2))};
      },
      {normal({3, 4, 5})}));
}

TEST(Contiguous, SameBitsForAnyThreads) {
  expect_same_bits_for_any_threads(
      [](const std::vector<Tensor>& x) {
        return std::vector{ops::contiguous(ops::transpose(x[0], 0, 2))};
      },
      {normal({40, 65, 33})});
}

TEST(Contiguous, Throws) {
  SLUICE_EXPECT_THROW(ops::contiguous({}), ArgumentError, "contiguous: x must be a tensor");
}

}  // namespace
}  // namespace sluice::testing
