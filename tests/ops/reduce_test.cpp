#include "ops/reduce.h"

#include <cmath>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "ops/binary.h"
#include "ops/sum_to.h"
#include "ops/view.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"
#include "tests/support/strided.h"

namespace sluice::testing {
namespace {

using ops::KeepDim;

struct Case {
  Shape shape;
  std::vector<int> axes;
};
// Along the last axis, along leading ones, both, none; short and long r; ragged and cut in
// segments.
const std::vector<Case> kCases = {
    {{1}, {}},
    {{}, {}},
    {{7}, {0}},
    {{4, 3}, {1}},  // r shorter than a register
    {{3, 64}, {-1}},
    {{3, 1237}, {1}},
    {{1237, 3}, {0}},
    {{700, 150}, {0}},  // two blocks of columns, ragged
    {{2, 3, 4, 5}, {}},
    {{2, 3, 4, 5}, {0, 2}},
    {{2, 3, 4, 5}, {1, 3}},
    {{2, 35, 3, 20}, {-1, 1}},
    {{5, 0}, {0}},
    {{2, 1, 9}, {1}},
};

struct Function {
  const char* name;
  Tensor (*op)(const Tensor&, const std::vector<int>&, KeepDim);
};
const std::vector<Function> kFunctions = {
    {"sum", ops::sum}, {"mean", ops::mean}, {"max", ops::max}};

// One output at a time, in f64, from the definition.
std::vector<double> reference(const std::string& name, const Tensor& x, const Case& c) {
  std::vector<bool> reduced(size_t(x.rank()), c.axes.empty());
  for (const int axis : c.axes) reduced[size_t(axis < 0 ? axis + x.rank() : axis)] = true;
  const auto in = x.to_vector<double>();
  int64_t outputs = 1, count = 1;
  for (int axis = 0; axis < x.rank(); ++axis) {
    (reduced[size_t(axis)] ? count : outputs) *= x.shape()[axis];
  }
  std::vector<double> out(size_t(outputs), name == "max" ? -INFINITY : 0.0);
  for (int64_t flat = 0; flat < x.numel(); ++flat) {
    int64_t rest = flat, output = 0, step = 1;
    for (int axis = x.rank() - 1; axis >= 0; --axis) {
      const int64_t index = rest % x.shape()[axis];
      rest /= x.shape()[axis];
      if (reduced[size_t(axis)]) continue;
      output += index * step;
      step *= x.shape()[axis];
    }
    double& value = out[size_t(output)];
    value = name == "max" ? std::max(value, in[size_t(flat)]) : value + in[size_t(flat)];
  }
  if (name == "mean") {
    for (double& value : out) value /= double(count);
  }
  return out;
}

bool empty_max(const std::string& name, const Case& c) {
  return name == "max" && c.shape.numel() == 0;
}

TEST(Reduce, MatchesTheDefinition) {
  for (const Function& f : kFunctions) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(fmt::format("{} {}", f.name, to_string(c.shape)));
      if (empty_max(f.name, c)) continue;
      const Tensor x = normal(c.shape);
      const auto expected = reference(f.name, x, c);
      const auto tolerance = tolerance_for(DType::f64, c.shape.numel());
      const Tensor out = f.op(x, c.axes, KeepDim::no);
      EXPECT_TRUE(near(out, expected, tolerance));
      EXPECT_TRUE(near(f.op(strided(x), c.axes, KeepDim::no), expected, tolerance, "strided"));
      const Tensor kept = f.op(x, c.axes, KeepDim::yes);
      EXPECT_EQ(kept.rank(), x.rank());
      EXPECT_TRUE(bit_equal(ops::reshape(kept, out.shape()), out));
    }
  }
}

TEST(Reduce, Gradients) {
  for (const Function& f : kFunctions) {
    for (const Case& c : kCases) {
      if (empty_max(f.name, c) || c.shape.numel() > 1000) continue;
      for (const KeepDim keep : {KeepDim::no, KeepDim::yes}) {
        EXPECT_TRUE(gradcheck_passes(
            [&](const std::vector<Tensor>& x) {
              const Tensor y = f.op(x[0], c.axes, keep);
              return std::vector{ops::mul(y, y)};
            },
            {normal(c.shape)}))
            << f.name << " " << to_string(c.shape);
      }
    }
  }
}

TEST(Reduce, F32AndBf16AgreeWithF64) {
  for (const Function& f : kFunctions) {
    for (const Case& c : kCases) {
      if (empty_max(f.name, c)) continue;
      SCOPED_TRACE(fmt::format("{} {}", f.name, to_string(c.shape)));
      expect_dtypes_agree(
          [&](const std::vector<Tensor>& x) {
            return std::vector{f.op(x[0], c.axes, KeepDim::no)};
          },
          {normal(c.shape)},
          c.shape.numel());
    }
  }
}

// 2^20 times 0.1: a single f32 accumulator is off by 1 %, bf16 ones stop growing at 32.
TEST(Reduce, LongSumsStayAccurate) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = full({1 << 20}, 0.1, {dtype, {}});
    const double exact = values_of(x)[0] * double(1 << 20);
    EXPECT_NEAR(values_of(ops::sum(x))[0], exact, exact * (dtype == DType::f32 ? 1e-6 : 4e-3));
    const Tensor columns = ops::sum(ops::reshape(x, {1 << 18, 4}), {0});
    for (const double value : values_of(columns)) {
      EXPECT_NEAR(value, exact / 4, exact / 4 * (dtype == DType::f32 ? 5e-6 : 4e-3));
    }
  }
}

TEST(Reduce, SameBitsForAnyThreads) {
  for (const Function& f : kFunctions) {
    for (const Case& c : std::vector<Case>{
             {{300000}, {}},
             {{4000, 70}, {0}},
             {{70, 4000}, {1}},
             {{3, 200, 500}, {0, 2}},
             {{90000, 3}, {1}}}) {
      expect_same_bits_for_any_threads(
          [&](const std::vector<Tensor>& x) {
            return std::vector{f.op(x[0], c.axes, KeepDim::no)};
          },
          {normal(c.shape)});
    }
  }
}

TEST(Reduce, MaxPropagatesNaNFromAnyLane) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    for (const int64_t at : {0, 1, 17, 63, 64, 99}) {
      std::vector<double> values(100, -1.0);
      values[size_t(at)] = NAN;
      const Tensor x = to_dtype(from_values(values, {100}), dtype);
      EXPECT_TRUE(std::isnan(values_of(ops::max(x))[0])) << at;
      EXPECT_TRUE(std::isnan(values_of(ops::max(ops::reshape(x, {100, 1}), {0}))[0])) << at;
    }
    EXPECT_EQ(values_of(ops::max(full({100}, -INFINITY, {dtype, {}})))[0], -INFINITY);
  }
}

TEST(Reduce, GradientOfMaxGoesToTheFirstMaximum) {
  const Tensor x = autograd::set_requires_grad(
      from_values(std::vector<double>{1, 5, 5, 0, NAN, 7, NAN, 9}, {2, 4}));
  autograd::backward(ops::max(x, {1}), full({2}, 1.0, {DType::f64, {}}));
  EXPECT_EQ(values_of(autograd::grad(x)), (std::vector<double>{0, 1, 0, 0, 1, 0, 0, 0}));
}

TEST(Reduce, EmptySums) {
  EXPECT_EQ(values_of(ops::sum(zeros({3, 0}), {1})), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(ops::sum(zeros({0, 3}), {1}).shape(), (Shape{0}));
  EXPECT_EQ(values_of(ops::sum(zeros({0})))[0], 0.0);
  EXPECT_TRUE(std::isnan(values_of(ops::mean(zeros({0})))[0]));
  EXPECT_EQ(ops::max(zeros({0, 3}), {1}).shape(), (Shape{0}));
}

TEST(Reduce, SumToIsTheAdjointOfBroadcasting) {
  const Tensor x = normal({4, 3, 5}), y = normal({3, 1}, 1);
  for (const Shape& shape :
       std::vector<Shape>{{4, 3, 5}, {3, 5}, {5}, {1, 5}, {4, 1, 1}, {3, 1}, {}}) {
    const Tensor probe = normal(shape, 2);
    // <sum_to(x), p> = <x, broadcast p>
    EXPECT_NEAR(
        ops::sum(ops::mul(ops::sum_to(x, shape), probe)).item<double>(),
        ops::sum(ops::mul(x, probe)).item<double>(),
        1e-12);
    EXPECT_TRUE(near(
        ops::sum_products_to(x, y, shape),
        ops::sum_to(ops::mul(x, y), shape),
        tolerance_for(DType::f64, 60)));
  }
}

TEST(Reduce, Throws) {
  for (const Function& f : kFunctions) {
    const std::string op = std::string(f.name) + ": ";
    const Tensor x = zeros({2, 3});
    SLUICE_EXPECT_THROW(f.op(x, {2}, KeepDim::no), ShapeError, op + "axis must be in [-2, 2)");
    SLUICE_EXPECT_THROW(f.op(x, {1, -1}, KeepDim::no), ShapeError, op + "axes must differ");
    SLUICE_EXPECT_THROW(
        f.op(counting({2}, DType::i32), {}, KeepDim::no), DTypeError, op + "x must be floating");
    SLUICE_EXPECT_THROW(f.op({}, {}, KeepDim::no), ArgumentError, op + "x must be a tensor");
  }
  SLUICE_EXPECT_THROW(ops::max(zeros({3, 0}), {1}), ArgumentError, "max: reduced axes must hold");
}

}  // namespace
}  // namespace sluice::testing
