#include "ops/rope.h"

#include <cmath>

#include <gtest/gtest.h>

#include "engine/errors.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"

namespace sluice {
namespace {

using ops::rope;
using testing::near;

constexpr TensorOptions kF64{DType::f64, {}};

std::vector<double> reference(const Tensor& x, const ops::RopeOptions& options) {
  std::vector<double> values = testing::values_of(x);
  const size_t width = size_t(x.size(3));
  const size_t tokens = size_t(x.size(2));
  for (size_t row = 0; row < values.size() / width; ++row) {
    const size_t t = row % tokens;
    const double position = options.positions.defined()
                                ? double(options.positions.data<int32_t>()[t])
                                : double(options.offset + int64_t(t));
    for (size_t i = 0; i < width / 2; ++i) {
      const double angle = position * std::pow(options.theta, -2.0 * double(i) / double(width));
      double& low = values[row * width + i];
      double& high = values[row * width + width / 2 + i];
      const double turned = low * std::cos(angle) - high * std::sin(angle);
      high = high * std::cos(angle) + low * std::sin(angle);
      low = turned;
    }
  }
  return values;
}

Tensor positions(int64_t tokens, int64_t (*at)(int64_t)) {
  std::vector<int32_t> values;
  for (int64_t t = 0; t < tokens; ++t) values.push_back(int32_t(at(t)));
  return from_values(values, {tokens});
}

struct Case {
  Shape x;
  ops::RopeOptions options;
};

// Few tokens take every angle directly, more than 65 take anchors; widths around a vector.
const Case kCases[] = {
    {{1, 1, 1, 2}, {}},
    {{2, 3, 7, 6}, {.theta = 100, .offset = 5}},
    {{1, 2, 64, 16}, {}},
    {{2, 2, 197, 66}, {.offset = 1000}},
    {{1, 1, 200, 4}, {.positions = positions(200, [](int64_t t) { return t % 70; })}},
    {{1, 1, 200, 4}, {.positions = positions(200, [](int64_t t) { return 40 - t; })}},
    {{1, 1, 200, 4}, {.positions = positions(200, [](int64_t t) { return t * 9973; })}},
};

TEST(Rope, MatchesItsFormula) {
  for (const Case& c : kCases) {
    const Tensor x = randn(c.x, 1, 0, kF64);
    // The angles themselves carry eps * position.
    EXPECT_TRUE(near(rope(x, c.options), reference(x, c.options), {2e-9, 1e-9}));
  }
}

TEST(Rope, GradientMatchesFiniteDifferences) {
  for (const Case& c : kCases) {
    if (c.x.numel() > 1000) continue;
    EXPECT_TRUE(testing::gradcheck_passes(
        [&](const auto& in) { return std::vector{rope(in[0], c.options)}; },
        {randn(c.x, 2, 0, kF64)}));
  }
}

TEST(Rope, DTypesAndThreadCountsAgree) {
  for (const Shape& shape : {Shape{1, 2, 1, 6}, Shape{2, 3, 150, 32}, Shape{1, 2, 400, 66}}) {
    const std::vector<Tensor> inputs{randn(shape, 3, 0, kF64)};
    const auto function = [](const std::vector<Tensor>& in) {
      return std::vector{rope(in[0], {.offset = 3})};
    };
    testing::expect_dtypes_agree(function, inputs, 2);
    testing::expect_same_bits_for_any_threads(function, inputs);
  }
}

// Scores depend on the distance of the positions only.
TEST(Rope, ShiftingAllPositionsKeepsDotProducts) {
  const Tensor x = randn({1, 1, 90, 8}, 4, 0, kF64);
  const auto near_zero = testing::values_of(rope(x, {}));
  const auto far_away = testing::values_of(rope(x, {.offset = 12345}));
  auto dot = [](const std::vector<double>& rows, size_t i, size_t j) {
    double sum = 0;
    for (size_t d = 0; d < 8; ++d) sum += rows[i * 8 + d] * rows[j * 8 + d];
    return sum;
  };
  for (size_t i = 0; i < 90; i += 7) {
    EXPECT_NEAR(dot(near_zero, i, 89 - i), dot(far_away, i, 89 - i), 1e-10);
  }
}

TEST(Rope, TakesStridedViewsAndReturnsTokenMajorMemory) {
  const int64_t B = 2, H = 3, T = 4, D = 8;
  const Tensor projection = randn({B, T, 3 * H * D}, 5);
  const Tensor k = projection.alias({B, H, T, D}, {T * 3 * H * D, D, 3 * H * D, 1}, H * D);
  const Tensor out = rope(k);
  EXPECT_TRUE(testing::bit_equal(out, rope(clone(k))));
  EXPECT_TRUE(out.alias({B, T, H * D}, {T * H * D, H * D, 1}, 0).contiguous());
  EXPECT_EQ(out.stride(2), H * D);
  const Tensor spread = projection.alias({1, 1, 3, 4}, {0, 0, 8, 2}, 0);
  EXPECT_TRUE(testing::bit_equal(rope(spread), rope(clone(spread))));
}

TEST(Rope, NoTokens) {
  EXPECT_EQ(rope(empty({2, 3, 0, 8})).numel(), 0);
  EXPECT_EQ(rope(empty({2, 3, 5, 0})).numel(), 0);
}

TEST(Rope, RefusesWhatDoesNotFit) {
  const Tensor x = randn({1, 2, 3, 4}, 6);
  SLUICE_EXPECT_THROW(rope(randn({2, 3, 4}, 6)), ShapeError, "x must have rank 4");
  SLUICE_EXPECT_THROW(rope(randn({1, 2, 3, 5}, 6)), ShapeError, "head width must be even, got 5");
  SLUICE_EXPECT_THROW(
      rope(x, {.positions = empty({4}, {DType::i32, {}})}),
      ShapeError,
      "positions must have shape");
  SLUICE_EXPECT_THROW(
      rope(x, {.positions = empty({3}, {DType::i64, {}})}), DTypeError, "positions must be i32");
  SLUICE_EXPECT_THROW(
      rope(empty({1, 2, 3, 4}, {DType::i32, {}})), DTypeError, "x must be floating");
  SLUICE_EXPECT_THROW(rope(x, {.theta = 0}), ArgumentError, "theta must be > 0");
  const Tensor elsewhere = empty({3}, {DType::i32, {DeviceType::simt}});
  SLUICE_EXPECT_THROW(rope(x, {.positions = elsewhere}), DeviceError, "positions must be on cpu");
}

}  // namespace
}  // namespace sluice
