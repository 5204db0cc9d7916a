#include "ops/softmax.h"

#include <cmath>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"
#include "tests/support/strided.h"

namespace sluice::testing {
namespace {

// One column, a router's three, the last narrow width and the first wide one, ragged wide rows.
const std::vector<Shape> kShapes = {
    {1}, {1, 1}, {5, 3}, {2, 37, 3}, {70, 16}, {3, 17}, {4, 64}, {2, 3, 203}, {0, 5}, {3, 0}};

std::vector<double> reference(const Tensor& x, bool logarithm) {
  auto values = x.to_vector<double>();
  const size_t width = size_t(x.size(-1));
  for (size_t row = 0; width > 0 && row < values.size() / width; ++row) {
    double sum = 0;
    for (size_t c = 0; c < width; ++c) sum += std::exp(values[row * width + c]);
    for (size_t c = 0; c < width; ++c) {
      double& value = values[row * width + c];
      value = logarithm ? value - std::log(sum) : std::exp(value) / sum;
    }
  }
  return values;
}

Tensor spread(const Shape& shape) {
  auto values = normal(shape).to_vector<double>();
  for (double& value : values) value *= 3;
  return from_values(values, shape);
}

std::vector<Tensor> soft(const std::vector<Tensor>& x) { return {ops::softmax(x[0])}; }
std::vector<Tensor> log_soft(const std::vector<Tensor>& x) { return {ops::log_softmax(x[0])}; }

TEST(Softmax, MatchesTheFormula) {
  for (const Shape& shape : kShapes) {
    const Tensor x = spread(shape);
    EXPECT_TRUE(near(ops::softmax(x), reference(x, false), {1e-15, 1e-14}));
    EXPECT_TRUE(near(ops::log_softmax(x), reference(x, true), {1e-14, 1e-14}));
    EXPECT_TRUE(bit_equal(ops::softmax(strided(x)), ops::softmax(x)));
    EXPECT_TRUE(bit_equal(ops::log_softmax(strided(x)), ops::log_softmax(x)));
  }
}

TEST(Softmax, Gradients) {
  for (const Shape& shape : kShapes) {
    EXPECT_TRUE(gradcheck_passes(soft, {spread(shape)})) << to_string(shape);
    EXPECT_TRUE(gradcheck_passes(log_soft, {spread(shape)})) << to_string(shape);
  }
}

TEST(Softmax, F32AndBf16AgreeWithF64) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(to_string(shape));
    expect_dtypes_agree(soft, {spread(shape)}, shape[shape.rank() - 1]);
    expect_dtypes_agree(log_soft, {spread(shape)}, shape[shape.rank() - 1]);
  }
}

// Case A5: one visible entry among 8192, the rest -infinity; and the same at a router's width.
TEST(Softmax, OneVisibleEntry) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    for (const int64_t width : {3, 16, 17, 8192}) {
      std::vector<double> values(size_t(width), -INFINITY), expected(size_t(width), 0.0);
      values.back() = -3.0;
      expected.back() = 1.0;
      const Tensor x = to_dtype(from_values(values, {width}), dtype);
      EXPECT_EQ(values_of(ops::softmax(x)), expected) << width;
      expected.assign(size_t(width), -INFINITY);
      expected.back() = 0.0;
      EXPECT_EQ(values_of(ops::log_softmax(x)), expected) << width;
    }
  }
}

TEST(Softmax, NothingVisibleGivesZerosAndNoGradient) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    for (const int64_t width : {1, 3, 16, 17, 8192}) {
      const Tensor x = autograd::set_requires_grad(full({2, width}, -INFINITY, {dtype, {}}));
      const std::vector<double> nothing(size_t(2 * width), 0.0);
      const Tensor y = ops::softmax(x);
      EXPECT_EQ(values_of(y), nothing);
      autograd::backward(y, full({2, width}, 1, {dtype, {}}));
      EXPECT_EQ(values_of(autograd::grad(x)), nothing);
      autograd::set_grad(x, {});
      const Tensor z = ops::log_softmax(x);
      for (const double value : values_of(z)) EXPECT_EQ(value, -INFINITY);
      autograd::backward(z, full({2, width}, 1, {dtype, {}}));
      EXPECT_EQ(values_of(autograd::grad(x)), nothing);
    }
  }
}

TEST(Softmax, LargeValuesAndShifts) {
  for (const int64_t width : {3, 100}) {
    const Tensor x = full({2, width}, 1e30);
    for (const double value : values_of(ops::softmax(x)))
      EXPECT_NEAR(value, 1.0 / double(width), 1e-7);
    const Tensor nan = full({1, width}, 0.0);
    *nan.data<float>() = NAN;
    for (const double value : values_of(ops::softmax(nan))) EXPECT_TRUE(std::isnan(value));
  }
}

TEST(Softmax, RowsSumToOneAndIgnoreTheirNeighbours) {
  for (const int64_t width : {3, 16, 50}) {
    const Tensor x = to_dtype(spread({61, width}), DType::f32);
    const Tensor y = ops::softmax(x);
    for (const double value : values_of(ops::sum(y, {1}))) EXPECT_NEAR(value, 1, 1e-6);
    for (const int64_t row : {0, 7, 60}) {
      EXPECT_TRUE(
          bit_equal(ops::softmax(ops::slice(x, 0, row, row + 1)), ops::slice(y, 0, row, row + 1)));
    }
  }
}

TEST(Softmax, SameBitsForAnyThreads) {
  for (const Shape& shape : std::vector<Shape>{{30000, 3}, {300, 257}}) {
    expect_same_bits_for_any_threads(soft, {spread(shape)});
    expect_same_bits_for_any_threads(log_soft, {spread(shape)});
  }
}

TEST(Softmax, Throws) {
  SLUICE_EXPECT_THROW(ops::softmax(zeros({})), ShapeError, "softmax: x must have an axis");
  SLUICE_EXPECT_THROW(ops::log_softmax(zeros({})), ShapeError, "log_softmax: x must have an axis");
  SLUICE_EXPECT_THROW(ops::softmax(counting({2}, DType::i32)), DTypeError, "x must be floating");
  SLUICE_EXPECT_THROW(
      ops::log_softmax(counting({2}, DType::i32)), DTypeError, "x must be floating");
  SLUICE_EXPECT_THROW(ops::softmax({}), ArgumentError, "softmax: x must be a tensor");
  SLUICE_EXPECT_THROW(ops::log_softmax({}), ArgumentError, "log_softmax: x must be a tensor");
}

}  // namespace
}  // namespace sluice::testing
