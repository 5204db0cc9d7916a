// The checker must pass right gradients and find wrong ones, at each of its three levels of detail.
#include "autograd/gradcheck.h"

#include <gtest/gtest.h>

#include "engine/errors.h"
#include "tests/autograd/tiny_ops.h"
#include "tests/support/compare.h"

namespace sluice::autograd {
namespace {

using namespace sluice::testing::tiny;  // NOLINT

std::vector<Tensor> cubic(const std::vector<Tensor>& in) {
  return {mul(mul(in[0], in[0]), in[1]), exp(in[1])};
}

// x * x whose gradient is wrong by `error` in entry `at`.
struct BadSquare final : Node {
  BadSquare(const Tensor& a, int64_t wrong_at, double by)
      : Node("bad_square", {a}), at(wrong_at), error(by) {
    save({a});
  }
  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    Tensor grad = map([](double g, double x) { return 2 * g * x; }, grads[0], saved(0));
    grad.data<double>()[at] += error * grads[0].data<double>()[at];
    return {grad};
  }
  int64_t at;
  double error;
};

GradcheckFunction bad_square(int64_t at, double error) {
  return [=](const std::vector<Tensor>& in) {
    const Tensor out = mul(in[0].detach(), in[0].detach());
    if (should_record(in)) record<BadSquare>(out, in[0], at, error);
    return std::vector<Tensor>{out};
  };
}

struct Level {
  const char* name;
  GradcheckOptions options;
};
const Level kLevels[] = {
    {"entries", {}},
    {"weighted", {.full_jacobian = 0}},
    {"directions", {.full_jacobian = 0, .max_inputs = 0}},
};

Tensor input(int64_t count, uint64_t seed) { return randn({count}, seed, 0, {DType::f64, {}}); }

TEST(Gradcheck, AcceptsRightGradients) {
  for (const Level& level : kLevels) {
    const auto result = gradcheck(cubic, {input(7, 1), input(7, 2)}, level.options);
    EXPECT_TRUE(result.ok) << level.name << ": " << result.message;
    EXPECT_LT(result.worst_error, 1e-8) << level.name;
    EXPECT_GT(result.worst_error, 0) << level.name;
  }
}

TEST(Gradcheck, FindsOneWrongEntryAndNamesIt) {
  for (const Level& level : kLevels) {
    const auto result = gradcheck(bad_square(3, 1e-3), {input(7, 1)}, level.options);
    EXPECT_FALSE(result.ok) << level.name;
    EXPECT_GT(result.worst_error, 1e-5) << level.name;
    EXPECT_NE(result.message.find("analytic"), std::string::npos);
    if (&level != &kLevels[2]) {
      EXPECT_NE(result.message.find("input 0 element 3"), std::string::npos) << result.message;
    }
  }
}

TEST(Gradcheck, NotANumberFails) {
  for (const Level& level : kLevels) {
    const auto result = gradcheck(bad_square(3, NAN), {input(7, 1)}, level.options);
    EXPECT_FALSE(result.ok) << level.name;
    EXPECT_EQ(result.worst_error, INFINITY) << level.name;
  }
}

TEST(Gradcheck, MissingGradientFails) {
  const auto cut = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{mul(in[0], in[0].detach())};
  };
  EXPECT_FALSE(gradcheck(cut, {input(3, 1)}).ok);
  // A constant output has no gradient and needs none.
  const auto constant = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{in[0], values({1, 2})};
  };
  EXPECT_TRUE(gradcheck(constant, {input(3, 1)}).ok);
}

TEST(Gradcheck, LargeUnrelatedOutputsDoNotDrownAnInput) {
  const auto function = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{map([](double x) { return 1e12 + x; }, in[1].detach()), exp(in[0])};
  };
  // The first output does not depend on what is checked: its 1e12 must cancel exactly.
  const auto only_first = [&](const std::vector<Tensor>& in) {
    return function({in[0], values({1, 2})});
  };
  EXPECT_TRUE(gradcheck(only_first, {input(3, 1)}, {.full_jacobian = 0}).ok);
}

TEST(Gradcheck, LeavesTheCallersInputsAlone) {
  const Tensor x = input(5, 1);
  const auto before = x.to_vector<double>();
  EXPECT_TRUE(gradcheck(cubic, {x, input(5, 2)}).ok);
  EXPECT_EQ(x.to_vector<double>(), before);
  EXPECT_FALSE(requires_grad(x));
}

TEST(Gradcheck, RefusesOtherDTypes) {
  SLUICE_EXPECT_THROW(
      gradcheck(cubic, {zeros({2}), zeros({2})}), DTypeError, "must be f64, got f32");
}

}  // namespace
}  // namespace sluice::autograd
