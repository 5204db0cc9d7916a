#include "ops/inplace.h"

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "ops/binary.h"
#include "ops/view.h"
#include "tests/support/compare.h"
#include "tests/support/strided.h"

namespace sluice::testing {
namespace {

const std::vector<Shape> kShapes = {{}, {1}, {5}, {3, 64}, {2, 3, 301}, {0, 4}};

TEST(Inplace, WritesDenseAndStridedTargets) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    for (const Shape& shape : kShapes) {
      const Tensor x = to_dtype(normal(shape), dtype), y = to_dtype(normal(shape, 1), dtype);
      for (const bool dense : {true, false}) {
        auto fresh = [&] { return dense ? clone(x) : strided(x); };
        const std::string what = fmt::format("{} {}", to_string(shape), dense);
        Tensor t = fresh();
        ops::add_(t, y);
        EXPECT_TRUE(bit_equal(t, ops::add(x, y), what));
        t = fresh();
        ops::add_(t, 0.3);
        EXPECT_TRUE(bit_equal(t, ops::add(x, 0.3), what));
        t = fresh();
        ops::mul_(t, strided(y));
        EXPECT_TRUE(bit_equal(t, ops::mul(x, y), what));
        t = fresh();
        ops::mul_(t, -2.0);
        EXPECT_TRUE(bit_equal(t, ops::mul(x, -2.0), what));
        t = fresh();
        ops::copy_(t, y);
        EXPECT_TRUE(bit_equal(t, y, what));
        t = fresh();
        ops::fill_(t, 0.5);
        EXPECT_TRUE(bit_equal(t, full(shape, 0.5, {dtype, {}}), what));
      }
    }
  }
}

TEST(Inplace, BroadcastsTheValueAndLeavesTheRestAlone) {
  const Tensor memory = counting({3, 4});
  ops::add_(ops::slice(memory, 1, 1, 3), from_values(std::vector<double>{100, 200}, {2}));
  EXPECT_EQ(
      values_of(memory), (std::vector<double>{0, 101, 202, 3, 4, 105, 206, 7, 8, 109, 210, 11}));
  ops::copy_(ops::select(memory, 0, 1), full({}, -1, {DType::f64, {}}));
  EXPECT_EQ(values_of(ops::select(memory, 0, 1)), (std::vector<double>(4, -1)));
}

TEST(Inplace, CopyConverts) {
  const Tensor target = zeros({2, 3}, {DType::i32, {}});
  ops::copy_(target, strided(full({2, 3}, 2.7)));
  EXPECT_EQ(values_of(target), std::vector<double>(6, 2));
  const Tensor wide = strided(zeros({4}));
  ops::copy_(wide, counting({4}, DType::bf16));
  EXPECT_EQ(values_of(wide), (std::vector<double>{0, 1, 2, 3}));
  ops::fill_(target, 7);
  EXPECT_EQ(values_of(target), std::vector<double>(6, 7));
}

TEST(Inplace, TheTargetOnBothSides) {
  const Tensor x = counting({5});
  ops::add_(x, x);
  EXPECT_EQ(values_of(x), (std::vector<double>{0, 2, 4, 6, 8}));
}

TEST(Inplace, StaleSavedTensorsAreRefused) {
  const Tensor x = autograd::set_requires_grad(normal({4}));
  const std::vector<std::pair<const char*, void (*)(const Tensor&)>> writes = {
      {"add_", [](const Tensor& t) { ops::add_(t, 1.0); }},
      {"mul_", [](const Tensor& t) { ops::mul_(t, 2.0); }},
      {"add_ tensor", [](const Tensor& t) { ops::add_(t, clone(t)); }},
      {"fill_", [](const Tensor& t) { ops::fill_(t, 2.0); }},
      {"copy_", [](const Tensor& t) { ops::copy_(t, clone(t)); }},
      {"copy_ cast", [](const Tensor& t) { ops::copy_(t, zeros({4})); }},
  };
  for (const auto& [name, write] : writes) {
    const Tensor factor = normal({4}, 1);
    const Tensor y = ops::mul(x, factor);
    write(factor);
    SLUICE_EXPECT_THROW(
        autograd::backward(y, full({4}, 1, {DType::f64, {}})), GradError, "must be unchanged");
  }
}

TEST(Inplace, ParametersAreWrittenInNoGradModeOnly) {
  const Tensor x = autograd::set_requires_grad(counting({3}));
  const Tensor y = ops::mul(x, 2.0);
  SLUICE_EXPECT_THROW(ops::add_(x, 1.0), GradError, "add_: target must not take part in a graph");
  SLUICE_EXPECT_THROW(ops::add_(x, x), GradError, "add_: target");
  SLUICE_EXPECT_THROW(ops::mul_(y, 1.0), GradError, "mul_: target");
  SLUICE_EXPECT_THROW(ops::copy_(x, y), GradError, "copy_: target");
  SLUICE_EXPECT_THROW(ops::fill_(x, 0), GradError, "fill_: target");
  const autograd::NoGrad off;
  ops::add_(x, 1.0);
  EXPECT_EQ(values_of(x), (std::vector<double>{1, 2, 3}));
}

TEST(Inplace, Throws) {
  const Tensor x = zeros({2, 3});
  SLUICE_EXPECT_THROW(ops::add_(x, zeros({2})), ShapeError, "add_: shapes must broadcast");
  SLUICE_EXPECT_THROW(ops::mul_(x, zeros({4, 2, 3})), ShapeError, "value must broadcast to (2, 3)");
  SLUICE_EXPECT_THROW(
      ops::copy_(x, zeros({1, 2, 3})), ShapeError, "value must broadcast to (2, 3)");
  SLUICE_EXPECT_THROW(ops::add_(x, counting({3})), DTypeError, "value must be f32, got f64");
  const Tensor ids = counting({2}, DType::i32);
  SLUICE_EXPECT_THROW(ops::add_(ids, ids), DTypeError, "target must be floating");
  SLUICE_EXPECT_THROW(ops::mul_(ids, 2), DTypeError, "target must be floating");
  const Tensor repeated = ops::expand(zeros({1, 3}), {2, 3});
  SLUICE_EXPECT_THROW(ops::add_(repeated, 1.0), ArgumentError, "must hold each element once");
  SLUICE_EXPECT_THROW(ops::fill_(repeated, 1.0), ArgumentError, "stride 0 along axis 0");
  SLUICE_EXPECT_THROW(ops::copy_({}, x), ArgumentError, "target must be a tensor");
  SLUICE_EXPECT_THROW(ops::copy_(x, {}), ArgumentError, "value must be a tensor");
  SLUICE_EXPECT_THROW(ops::add_(x, Tensor()), ArgumentError, "value must be a tensor");
  SLUICE_EXPECT_THROW(ops::fill_({}, 0), ArgumentError, "target must be a tensor");
}

}  // namespace
}  // namespace sluice::testing
