#include "ops/unary.h"

#include <cmath>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "kernels/simd/dispatch.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"
#include "tests/support/strided.h"

namespace sluice::testing {
namespace {

struct Case {
  const char* name;
  Tensor (*op)(const Tensor&);
  double (*truth)(double);
  bool positive = false;  // defined for x > 0 only
};

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

const std::vector<Case> kCases = {
    {"neg", ops::neg, [](double x) { return -x; }},
    {"exp", ops::exp, [](double x) { return std::exp(x); }},
    {"log", ops::log, [](double x) { return std::log(x); }, true},
    {"sqrt", ops::sqrt, [](double x) { return std::sqrt(x); }, true},
    {"sigmoid", ops::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"softplus",
     ops::softplus,
     [](double x) { return std::log1p(std::exp(-std::abs(x))) + std::max(x, 0.0); }},
    {"silu", ops::silu, [](double x) { return x / (1 + std::exp(-x)); }},
    {"elu", ops::elu, [](double x) { return x > 0 ? x : std::expm1(x); }},
    {"relu", ops::relu, [](double x) { return x > 0 ? x : 0; }},
    {"square", ops::square, [](double x) { return x * x; }},
    {"abs", ops::abs, [](double x) { return std::abs(x); }},
    {"gelu",
     [](const Tensor& x) { return ops::gelu(x); },
     [](double x) { return x * normal_cdf(x); }},
    {"gelu tanh",
     [](const Tensor& x) { return ops::gelu(x, ops::GeluForm::tanh); },
     [](double x) {
       return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
     }},
};

// Values spread over magnitudes that the functions care about, both signs.
Tensor inputs_of(const Case& c, const Shape& shape) {
  auto values = normal(shape).to_vector<double>();
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % 3 == 1) values[i] *= 4;
    if (i % 5 == 2) values[i] *= 0.01;
    if (c.positive) values[i] = std::abs(values[i]) + 0.2;
  }
  return from_values(values, shape);
}

autograd::GradcheckFunction function_of(const Case& c) {
  return [&c](const std::vector<Tensor>& x) { return std::vector{c.op(x[0])}; };
}

// One element, below a register, exactly some, three blocks of a strided run and a ragged end.
const std::vector<Shape> kShapes = {{1}, {}, {3}, {64}, {2, 3, 5}, {2, 781}, {0, 3}};

TEST(Unary, MatchesTheFormulaInF64) {
  for (const Case& c : kCases) {
    for (const Shape& shape : kShapes) {
      const Tensor x = inputs_of(c, shape);
      std::vector<double> expected;
      for (const double value : x.to_vector<double>()) expected.push_back(c.truth(value));
      EXPECT_TRUE(near(c.op(x), expected, {1e-14, 1e-13}, c.name));
    }
  }
}

TEST(Unary, Gradients) {
  for (const Case& c : kCases) {
    EXPECT_TRUE(gradcheck_passes(function_of(c), {inputs_of(c, {3, 37})})) << c.name;
  }
}

TEST(Unary, F32AndBf16AgreeWithF64) {
  for (const Case& c : kCases) {
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(fmt::format("{} {}", c.name, to_string(shape)));
      expect_dtypes_agree(function_of(c), {inputs_of(c, shape)}, 1);
    }
  }
}

// The claims of kernels/simd/math.h, on every instruction set that this CPU has. The bound on the
// relative error holds where the function is not near a root.
TEST(Unary, F32IsAccurateOverItsWholeRange) {
  struct Bound {
    const char* name;
    double absolute, relative;
  };
  const std::vector<Bound> bounds = {
      {"exp", 1e-37, 3e-7},
      {"log", 1.2e-7, 2e-7},
      {"sigmoid", 1e-37, 4e-7},
      {"softplus", 1e-37, 5e-7},
      {"silu", 2e-36, 5e-7},
      {"elu", 0, 4e-7},
      {"gelu", 3e-7, 2e-7},
      {"gelu tanh", 5e-7, 5e-7}};
  std::vector<float> grid;
  for (double x = -90; x <= 88; x += 0.0037) grid.push_back(float(x));
  for (double x = 1e-30; x < 1e30; x *= 1.07) grid.push_back(float(x)), grid.push_back(-float(x));
  const auto chosen = kernels::simd_level();
  for (int level = 0; level <= int(kernels::best_simd_level()); ++level) {
    kernels::force_simd_level(kernels::SimdLevel(level));
    for (const Bound& bound : bounds) {
      for (const Case& c : kCases) {
        if (std::string(c.name) != bound.name) continue;
        std::vector<float> values;
        std::vector<double> expected;
        for (const float x : grid) {
          if ((c.positive && x <= 0) || std::abs(c.truth(x)) > 3e38) continue;
          values.push_back(x);
          expected.push_back(c.truth(x));
        }
        const Tensor x = from_values(values, {int64_t(values.size())});
        EXPECT_TRUE(near(c.op(x), expected, {bound.absolute, bound.relative}, c.name)) << level;
      }
    }
  }
  kernels::force_simd_level(chosen);
}

TEST(Unary, SpecialValues) {
  struct Special {
    const char* name;
    double at_minus_infinity, at_infinity;
  };
  const double nan = NAN;
  const std::vector<Special> specials = {
      {"neg", INFINITY, -INFINITY},
      {"exp", 0, INFINITY},
      {"log", nan, INFINITY},
      {"sqrt", nan, INFINITY},
      {"sigmoid", 0, 1},
      {"softplus", 0, INFINITY},
      {"silu", 0, INFINITY},
      {"elu", -1, INFINITY},
      {"relu", 0, INFINITY},
      {"square", INFINITY, INFINITY},
      {"abs", INFINITY, INFINITY},
      {"gelu", 0, INFINITY},
      {"gelu tanh", 0, INFINITY}};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    for (const Special& special : specials) {
      for (const Case& c : kCases) {
        if (std::string(c.name) != special.name) continue;
        const Tensor x =
            to_dtype(from_values(std::vector<double>{-INFINITY, INFINITY, NAN}, {3}), dtype);
        const auto y = values_of(c.op(x));
        auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
        EXPECT_TRUE(same(y[0], special.at_minus_infinity)) << c.name << " " << y[0];
        EXPECT_TRUE(same(y[1], special.at_infinity)) << c.name << " " << y[1];
        EXPECT_TRUE(std::isnan(y[2])) << c.name << " " << y[2];
      }
    }
    EXPECT_EQ(values_of(ops::log(zeros({1}, {dtype, {}})))[0], -INFINITY);
  }
}

// Saturated arguments give the limits of the slope, not infinity * 0.
TEST(Unary, GradientsAreFiniteFarOut) {
  for (const Case& c : kCases) {
    if (c.positive || std::string(c.name) == "exp") continue;
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
      const Tensor x = autograd::set_requires_grad(
          to_dtype(from_values(std::vector<double>{-1e30, -300, 300, 1e30, 0}, {5}), dtype));
      const Tensor y = c.op(x);
      autograd::backward(y, full({5}, 1.0, {dtype, {}}));
      for (const double value : values_of(autograd::grad(x))) {
        EXPECT_TRUE(std::isfinite(value)) << c.name << " " << name_of(dtype);
      }
    }
  }
}

// No element depends on its position or on the layout.
TEST(Unary, StridedInputsGiveTheBitsOfDenseOnes) {
  for (const Case& c : kCases) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor x = to_dtype(inputs_of(c, {5, 3, 301}), dtype);
      EXPECT_TRUE(bit_equal(c.op(strided(x)), c.op(x), c.name));
      EXPECT_TRUE(c.op(strided(x)).contiguous());
    }
  }
}

// A step of -1 is not a dense run: taken for one it reads behind the memory.
TEST(Unary, ReversedInputsGiveTheBitsOfDenseOnes) {
  for (const Case& c : kCases) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
      const Tensor x = to_dtype(inputs_of(c, {301}), dtype).alias({301}, {-1}, 300);
      EXPECT_TRUE(bit_equal(c.op(x), c.op(clone(x)), c.name));
    }
  }
}

TEST(Unary, SameBitsForAnyThreads) {
  for (const Case& c : kCases) {
    expect_same_bits_for_any_threads(function_of(c), {inputs_of(c, {3, 25000})});
  }
}

TEST(Unary, SavesOneTensorAtMost) {
  const Tensor x = autograd::set_requires_grad(normal({8}));
  EXPECT_EQ(autograd::graph_report(ops::neg(x))[0].saved_bytes, 0u);
  EXPECT_EQ(autograd::graph_report(ops::gelu(x))[0].saved_bytes, 64u);
  EXPECT_EQ(autograd::graph_report(ops::gelu(x))[0].name, "gelu");
}

TEST(Unary, Throws) {
  for (const Case& c : kCases) {
    SLUICE_EXPECT_THROW(c.op(counting({2}, DType::i32)), DTypeError, "x must be floating, got i32");
    SLUICE_EXPECT_THROW(c.op({}), ArgumentError, "x must be a tensor, got undefined");
  }
}

}  // namespace
}  // namespace sluice::testing
