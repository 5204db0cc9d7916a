#include "ops/binary.h"

#include <cmath>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "ops/view.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"
#include "tests/support/strided.h"

namespace sluice::testing {
namespace {

struct Case {
  const char* name;
  Tensor (*op)(const Tensor&, const Tensor&);
  Tensor (*right_number)(const Tensor&, double);
  Tensor (*left_number)(double, const Tensor&);  // or null
  double (*truth)(double, double);
};

const std::vector<Case> kCases = {
    {"add", ops::add, ops::add, nullptr, [](double a, double b) { return a + b; }},
    {"sub", ops::sub, ops::sub, ops::sub, [](double a, double b) { return a - b; }},
    {"mul", ops::mul, ops::mul, nullptr, [](double a, double b) { return a * b; }},
    {"div", ops::div, ops::div, ops::div, [](double a, double b) { return a / b; }},
    {"maximum",
     ops::maximum,
     ops::maximum,
     nullptr,
     [](double a, double b) { return a > b ? a : b; }},
    {"minimum",
     ops::minimum,
     ops::minimum,
     nullptr,
     [](double a, double b) { return a < b ? a : b; }},
};

struct Shapes {
  Shape a, b;
};
const std::vector<Shapes> kShapes = {
    {{1}, {1}},
    {{5}, {5}},
    {{2, 64}, {2, 64}},
    {{3, 7}, {7}},     // bias
    {{3, 7}, {3, 1}},  // gate
    {{7}, {4, 3, 7}},
    {{2, 1, 5}, {3, 1}},  // both repeated
    {{}, {2, 3}},
    {{150, 3}, {3}},  // the long axis runs inside
    {{40, 1}, {2, 40, 3}},
    {{2, 3, 4, 35}, {3, 1, 35}},
    {{0, 3}, {3}},
    {{2, 0}, {1, 1}},
};

// Away from 0, so that division is smooth.
Tensor values(const Shape& shape, uint64_t stream) {
  auto numbers = normal(shape, stream).to_vector<double>();
  for (double& x : numbers) x += x > 0 ? 0.5 : -0.5;
  return from_values(numbers, shape);
}

double at(const Tensor& x, const Shape& shape, int64_t flat) {
  int64_t offset = 0;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const int64_t index = flat % shape[axis];
    flat /= shape[axis];
    const int own = axis - (shape.rank() - x.rank());
    if (own >= 0 && x.shape()[own] != 1) offset += index * x.strides()[size_t(own)];
  }
  return x.data<double>()[offset];
}

TEST(Binary, MatchesTheFormulaInF64) {
  for (const Case& c : kCases) {
    for (const Shapes& s : kShapes) {
      const Tensor a = values(s.a, 0), b = values(s.b, 1);
      const Shape shape = broadcast_shapes(s.a, s.b, "test");
      std::vector<double> expected;
      for (int64_t i = 0; i < shape.numel(); ++i) {
        expected.push_back(c.truth(at(a, shape, i), at(b, shape, i)));
      }
      const Tensor out = c.op(a, b);
      EXPECT_EQ(out.shape(), shape);
      EXPECT_TRUE(near(out, expected, {1e-15, 1e-15}, c.name));
      EXPECT_TRUE(bit_equal(c.op(strided(a), b), out, c.name));
      EXPECT_TRUE(bit_equal(c.op(a, strided(b)), out, c.name));
    }
  }
}

TEST(Binary, ReversedInputsGiveTheBitsOfDenseOnes) {
  for (const Case& c : kCases) {
    const Tensor a = to_dtype(values({301}, 0), DType::f32);
    const Tensor b = to_dtype(values({301}, 1), DType::f32);
    const Tensor back = b.alias({301}, {-1}, 300);
    EXPECT_TRUE(bit_equal(c.op(a, back), c.op(a, clone(back)), c.name));
    EXPECT_TRUE(bit_equal(c.op(back, a), c.op(clone(back), a), c.name));
  }
}

TEST(Binary, Gradients) {
  for (const Case& c : kCases) {
    for (const Shapes& s : kShapes) {
      EXPECT_TRUE(gradcheck_passes(
          [&](const std::vector<Tensor>& x) { return std::vector{c.op(x[0], x[1])}; },
          {values(s.a, 0), values(s.b, 1)}))
          << c.name << " " << to_string(s.a) << " " << to_string(s.b);
    }
  }
}

TEST(Binary, NumbersOnEitherSide) {
  const Tensor x = values({3, 41}, 0);
  const Tensor number = full({}, 0.3, {DType::f64, {}});
  for (const Case& c : kCases) {
    EXPECT_TRUE(near(c.right_number(x, 0.3), c.op(x, number), {1e-15, 1e-15}, c.name));
    EXPECT_TRUE(gradcheck_passes(
        [&](const std::vector<Tensor>& v) { return std::vector{c.right_number(v[0], 0.3)}; }, {x}));
    if (c.left_number == nullptr) continue;
    EXPECT_TRUE(near(c.left_number(0.3, x), c.op(number, x), {1e-15, 1e-15}, c.name));
    EXPECT_TRUE(gradcheck_passes(
        [&](const std::vector<Tensor>& v) { return std::vector{c.left_number(0.3, v[0])}; }, {x}));
  }
  // 1e-3 is not a bf16 number: rounding it first would be off by up to 2^-9.
  const Tensor scaled = ops::mul(full({1}, 1024, {DType::bf16, {}}), 1e-3);
  EXPECT_EQ(values_of(scaled)[0], double(float(bfloat16(1.024f))));
}

TEST(Binary, F32AndBf16AgreeWithF64) {
  for (const Case& c : kCases) {
    for (const Shapes& s : kShapes) {
      SCOPED_TRACE(fmt::format("{} {} {}", c.name, to_string(s.a), to_string(s.b)));
      expect_dtypes_agree(
          [&](const std::vector<Tensor>& x) { return std::vector{c.op(x[0], x[1])}; },
          {values(s.a, 0), values(s.b, 1)},
          std::max(s.a.numel(), s.b.numel()));
    }
  }
}

TEST(Binary, MaximumAndMinimum) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const Tensor a = to_dtype(from_values(std::vector<double>{NAN, 1, NAN, 2, 3}, {5}), dtype);
    const Tensor b = to_dtype(from_values(std::vector<double>{1, NAN, NAN, 2, 4}, {5}), dtype);
    for (const auto& op : {kCases[4].op, kCases[5].op}) {
      const auto out = values_of(op(a, b));
      for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(out[size_t(i)]));
      EXPECT_EQ(out[3], 2);
    }
    EXPECT_EQ(values_of(ops::maximum(a, b))[4], 4);
    EXPECT_EQ(values_of(ops::minimum(a, b))[4], 3);
  }
  // Equal values: all of the gradient to a, none lost and none doubled.
  for (const auto& op : {kCases[4].op, kCases[5].op}) {
    const Tensor a = autograd::set_requires_grad(full({3}, 2.0));
    const Tensor b = autograd::set_requires_grad(full({3}, 2.0));
    autograd::backward(op(a, b), full({3}, 1.0));
    EXPECT_EQ(values_of(autograd::grad(a)), (std::vector<double>{1, 1, 1}));
    EXPECT_EQ(values_of(autograd::grad(b)), (std::vector<double>{0, 0, 0}));
  }
}

TEST(Binary, SameTensorOnBothSides) {
  for (const Case& c : kCases) {
    if (std::string(c.name) == "maximum" || std::string(c.name) == "minimum") continue;
    EXPECT_TRUE(gradcheck_passes(
        [&](const std::vector<Tensor>& x) { return std::vector{c.op(x[0], x[0])}; },
        {values({7}, 0)}))
        << c.name;
  }
}

TEST(Binary, SavesOnlyWhatBackwardReads) {
  const Tensor a = autograd::set_requires_grad(values({8}, 0));
  const Tensor b = values({8}, 1);
  EXPECT_EQ(autograd::graph_report(ops::add(a, b))[0].saved_bytes, 0u);
  EXPECT_EQ(autograd::graph_report(ops::mul(a, b))[0].saved_bytes, 64u);
  EXPECT_EQ(autograd::graph_report(ops::div(a, b))[0].saved_bytes, 64u);
}

TEST(Binary, SameBitsForAnyThreads) {
  for (const Case& c : kCases) {
    expect_same_bits_for_any_threads(
        [&](const std::vector<Tensor>& x) { return std::vector{c.op(x[0], x[1])}; },
        {values({300, 257}, 0), values({257}, 1)});
    expect_same_bits_for_any_threads(
        [&](const std::vector<Tensor>& x) { return std::vector{c.op(x[0], x[1])}; },
        {values({300, 1}, 0), values({300, 257}, 1)});
  }
}

TEST(Binary, Throws) {
  for (const Case& c : kCases) {
    const std::string op = std::string(c.name) + ": ";
    SLUICE_EXPECT_THROW(c.op(zeros({2}), zeros({3})), ShapeError, op + "shapes must broadcast");
    SLUICE_EXPECT_THROW(c.op(zeros({2}), counting({2})), DTypeError, op + "b must be f32, got f64");
    const Tensor ids = counting({2}, DType::i32);
    SLUICE_EXPECT_THROW(c.op(ids, ids), DTypeError, op + "a must be floating");
    SLUICE_EXPECT_THROW(c.right_number(ids, 1), DTypeError, op + "x must be floating");
    SLUICE_EXPECT_THROW(c.op({}, zeros({2})), ArgumentError, op + "a must be a tensor");
    SLUICE_EXPECT_THROW(c.op(zeros({2}), {}), ArgumentError, op + "b must be a tensor");
  }
}

}  // namespace
}  // namespace sluice::testing
