#include "ops/cat.h"

#include <gtest/gtest.h>

#include "engine/errors.h"
#include "ops/binary.h"
#include "ops/view.h"
#include "tests/support/compare.h"
#include "tests/support/strided.h"

namespace sluice::testing {
namespace {

TEST(Cat, UndoesSplitAlongEveryAxis) {
  for (const DType dtype : {DType::u8, DType::bf16, DType::f32, DType::i64}) {
    const Tensor x = counting({4, 6, 5}, dtype);
    for (const int axis : {0, 1, 2, -1}) {
      const int64_t extent = x.size(axis);
      EXPECT_TRUE(bit_equal(ops::cat(ops::split(x, axis, {1, 0, extent - 1}), axis), x));
      EXPECT_TRUE(bit_equal(ops::cat(ops::split(strided(x), axis, {extent - 1, 1}), axis), x));
    }
  }
}

TEST(Cat, OneTensorIsCopied) {
  const Tensor x = counting({2, 3});
  const Tensor y = ops::cat({x}, 0);
  EXPECT_TRUE(bit_equal(y, x));
  EXPECT_NE(y.storage(), x.storage());
}

TEST(Cat, EmptyTensors) {
  EXPECT_EQ(ops::cat({zeros({0, 3}), zeros({0, 3})}, 0).shape(), (Shape{0, 3}));
  EXPECT_EQ(ops::cat({zeros({2, 0}), zeros({3, 0})}, 0).shape(), (Shape{5, 0}));
  EXPECT_TRUE(bit_equal(
      ops::cat({zeros({0, 3}), counting({2, 3}, DType::f32)}, 0), counting({2, 3}, DType::f32)));
}

TEST(Cat, Gradients) {
  for (const int axis : {0, 1, -1}) {
    std::vector<Tensor> inputs;
    for (const int64_t extent : {1, 3, 0, 2}) {
      std::vector<int64_t> dims = {2, 3, 4};
      dims[size_t(axis < 0 ? 2 : axis)] = extent;
      inputs.push_back(normal(Shape(dims), uint64_t(extent)));
    }
    EXPECT_TRUE(gradcheck_passes(
        [&](const std::vector<Tensor>& x) {
          const Tensor y = ops::cat(x, axis);
          return std::vector{ops::mul(y, y)};
        },
        inputs));
  }
}

// A leaf used twice gets both parts of the gradient.
TEST(Cat, TheSameTensorTwice) {
  EXPECT_TRUE(gradcheck_passes(
      [](const std::vector<Tensor>& x) {
        const Tensor y = ops::cat({x[0], x[0]}, 1);
        return std::vector{ops::mul(y, y)};
      },
      {normal({2, 3})}));
}

TEST(Cat, Throws) {
  SLUICE_EXPECT_THROW(ops::cat({}, 0), ArgumentError, "cat: tensors must be one or more");
  SLUICE_EXPECT_THROW(ops::cat({Tensor()}, 0), ArgumentError, "must be a tensor, got undefined");
  SLUICE_EXPECT_THROW(ops::cat({zeros({2}), Tensor()}, 0), ArgumentError, "each tensor");
  SLUICE_EXPECT_THROW(
      ops::cat({zeros({2, 3}), zeros({2, 4})}, 0), ShapeError, "must be (2, 3) but for axis 0");
  SLUICE_EXPECT_THROW(ops::cat({zeros({2, 3}), zeros({2})}, 0), ShapeError, "got (2)");
  SLUICE_EXPECT_THROW(ops::cat({zeros({2})}, 1), ShapeError, "cat: axis must be in [-1, 1)");
  SLUICE_EXPECT_THROW(
      ops::cat({zeros({2}), zeros({2}, {DType::bf16, {}})}, 0),
      DTypeError,
      "must be f32, got bf16");
}

}  // namespace
}  // namespace sluice::testing
