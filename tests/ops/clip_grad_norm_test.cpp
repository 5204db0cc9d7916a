#include "ops/clip_grad_norm.h"

#include <cmath>

#include <gtest/gtest.h>

#include "engine/context.h"
#include "engine/errors.h"
#include "tests/support/compare.h"

namespace sluice {
namespace {

using ops::clip_scale;
using ops::grad_norm;

const Shape kShapes[] = {{}, {3, 5}, {0}, {16384}, {7, 7001}};

std::vector<Tensor> several(DType dtype) {
  std::vector<Tensor> grads;
  for (const Shape& shape : kShapes) {
    grads.push_back(to_dtype(randn(shape, 1, grads.size(), {DType::f64, {}}), dtype));
  }
  return grads;
}

TEST(GradNorm, IsTheNormOfAllElements) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const auto grads = several(dtype);
    double sum = 0;
    for (const Tensor& grad : grads) {
      for (const double value : testing::values_of(grad)) sum += value * value;
    }
    EXPECT_NEAR(grad_norm(grads), std::sqrt(sum), 1e-10 * std::sqrt(sum));
  }
}

TEST(GradNorm, MixedDTypesViewsAndAbsentGradients) {
  const Tensor square = from_values(std::vector<float>{1, 2, 3, 4}, {2, 2});
  const std::vector<Tensor> grads{
      Tensor(),
      square.alias({2}, {2}, 0),  // 1, 3
      from_values(std::vector<double>{5}, {1}),
      to_dtype(square, DType::bf16).alias({1}, {1}, 0)  // 1
  };
  EXPECT_DOUBLE_EQ(grad_norm(grads), 6);
  EXPECT_EQ(grad_norm({}), 0);
  EXPECT_EQ(grad_norm(std::vector<Tensor>{Tensor(), empty({0})}), 0);
}

// f32 squares would overflow and underflow.
TEST(GradNorm, ExtremeValues) {
  EXPECT_NEAR(grad_norm(std::vector{full({4}, 1e30)}), 2e30, 1e24);
  EXPECT_NEAR(grad_norm(std::vector{full({4}, 1e-30)}), 2e-30, 1e-36);
  EXPECT_EQ(grad_norm(std::vector{full({40}, INFINITY)}), INFINITY);
  EXPECT_TRUE(std::isnan(grad_norm(std::vector{full({1}, 1), full({33}, NAN)})));
}

TEST(GradNorm, SameBitsForAnyThreads) {
  const auto grads = several(DType::f32);
  const auto on = [&](int threads) {
    ThreadPool pool(threads);
    CpuContext context{pool};
    const ContextScope scope(context);
    return grad_norm(grads);
  };
  EXPECT_EQ(on(1), on(2));
  EXPECT_EQ(on(1), on(3));
}

TEST(GradNorm, RefusesWhatDoesNotFit) {
  SLUICE_EXPECT_THROW(
      grad_norm(std::vector{empty({1}, {DType::i32, {}})}), DTypeError, "grads must be floating");
  SLUICE_EXPECT_THROW(
      grad_norm(std::vector{zeros({1}), zeros({1}, {DType::f32, {DeviceType::simt}})}),
      DeviceError,
      "grads must be on cpu");
}

TEST(ClipScale, BoundsTheNorm) {
  EXPECT_EQ(clip_scale(0, 1), 1);
  EXPECT_EQ(clip_scale(1, 1), 1);
  EXPECT_EQ(clip_scale(4, 1), 0.25);
  SLUICE_EXPECT_THROW(clip_scale(1, 0), ArgumentError, "max_norm must be > 0");
  SLUICE_EXPECT_THROW(clip_scale(NAN, 1), ArgumentError, "norm must be finite");
  SLUICE_EXPECT_THROW(clip_scale(INFINITY, 1), ArgumentError, "norm must be finite");
}

}  // namespace
}  // namespace sluice
