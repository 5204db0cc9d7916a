#include "ops/silu_mul.h"

#include <cmath>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"

namespace sluice {
namespace {

using ops::silu_mul;
using testing::near;

constexpr TensorOptions kF64{DType::f64, {}};

std::vector<double> reference(const Tensor& gate, const Tensor& up) {
  std::vector<double> values = testing::values_of(gate);
  const std::vector<double> factor = testing::values_of(up);
  for (size_t i = 0; i < values.size(); ++i) values[i] *= factor[i] / (1 + std::exp(-values[i]));
  return values;
}

std::vector<Tensor> inputs_of(const Shape& shape) {
  return {randn(shape, 1, 0, kF64), randn(shape, 1, 1, kF64)};
}

std::vector<Tensor> gated(const std::vector<Tensor>& in) { return {silu_mul(in[0], in[1])}; }

TEST(SiluMul, MatchesItsFormulaAndItsFiniteDifferences) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{3, 5}, Shape{2, 4, 16}, Shape{2, 3, 51}}) {
    const std::vector<Tensor> in = inputs_of(shape);
    EXPECT_TRUE(near(silu_mul(in[0], in[1]), reference(in[0], in[1]), {1e-12, 1e-12}));
    EXPECT_TRUE(testing::gradcheck_passes(gated, in));
  }
}

// The second shape is cut into three ragged pieces.
TEST(SiluMul, DTypesAndThreadCountsAgree) {
  for (const Shape& shape : {Shape{7}, Shape{3, 13001}}) {
    testing::expect_dtypes_agree(gated, inputs_of(shape), 1);
    testing::expect_same_bits_for_any_threads(gated, inputs_of(shape));
  }
}

TEST(SiluMul, HalvesOfOneProjectionAreReadInPlace) {
  const int64_t F = 20;
  const Tensor both = randn({5, 7, 2 * F}, 2, 0, kF64);
  const Tensor gate = both.alias({5, 7, F}, {7 * 2 * F, 2 * F, 1}, 0);
  const Tensor up = both.alias({5, 7, F}, {7 * 2 * F, 2 * F, 1}, F);
  EXPECT_TRUE(near(silu_mul(gate, up), reference(gate, up), {1e-12, 1e-12}));
  const Tensor wide = randn({40, 1000}, 2, 1, kF64);
  const Tensor left = wide.alias({40, 500}, {1000, 1}, 0);
  const Tensor right = wide.alias({40, 500}, {1000, 1}, 500);
  EXPECT_TRUE(near(silu_mul(left, right), reference(left, right), {1e-12, 1e-12}));
}

TEST(SiluMul, AnyOtherStridesWorkToo) {
  const Tensor memory = randn({6, 4}, 3, 0, kF64);
  const Tensor transposed = memory.alias({4, 6}, {1, 4}, 0);
  const Tensor row = memory.alias({4, 6}, {0, 1}, 0);
  EXPECT_TRUE(near(silu_mul(transposed, row), reference(transposed, row), {1e-12, 1e-12}));
}

TEST(SiluMul, LargeGatesSaturateWithoutNaN) {
  const Tensor gate = from_values(std::vector<float>{-200, -90, 90, 200}, {4});
  const Tensor out = silu_mul(gate, full({4}, 2));
  EXPECT_TRUE(near(out, std::vector<double>{0, 0, 180, 400}, {1e-30, 1e-6}));
}

TEST(SiluMul, InfiniteGatesSaturateWithoutNaN) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const Tensor gate = full({40}, -INFINITY, {dtype, {}});
    const Tensor up = full({40}, 2, {dtype, {}});
    autograd::set_requires_grad(gate);
    autograd::set_requires_grad(up);
    const Tensor out = silu_mul(gate, up);
    autograd::backward(out, full({40}, 1, {dtype, {}}));
    for (const Tensor& t : {out, autograd::grad(gate), autograd::grad(up)}) {
      EXPECT_TRUE(near(t, std::vector<double>(40, 0.0), {1e-30, 0}));
    }
  }
}

TEST(SiluMul, NoElements) { EXPECT_EQ(silu_mul(empty({0, 3}), empty({0, 3})).numel(), 0); }

TEST(SiluMul, RefusesWhatDoesNotFit) {
  const Tensor gate = randn({2, 3}, 4);
  SLUICE_EXPECT_THROW(silu_mul(gate, randn({3}, 4)), ShapeError, "up must have shape (2, 3)");
  SLUICE_EXPECT_THROW(silu_mul(gate, randn({2, 3}, 4, 0, kF64)), DTypeError, "up must be f32");
  const Tensor ids = empty({2, 3}, {DType::i32, {}});
  SLUICE_EXPECT_THROW(silu_mul(ids, ids), DTypeError, "gate must be floating");
  const Tensor elsewhere = empty({2, 3}, {DType::f32, {DeviceType::simt}});
  SLUICE_EXPECT_THROW(silu_mul(gate, elsewhere), DeviceError, "up must be on cpu");
}

}  // namespace
}  // namespace sluice
