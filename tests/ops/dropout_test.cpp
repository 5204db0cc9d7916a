#include "ops/dropout.h"

#include <cmath>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "kernels/simd/dispatch.h"
#include "ops/view.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"
#include "tests/support/strided.h"

namespace sluice::testing {
namespace {

const PhiloxKey kKey{0x123456789abcdefull, 0xfedcba9876543210ull};

// The definition, with the engine's generator.
std::vector<double> reference(const Tensor& x, double p, PhiloxKey key) {
  auto values = x.to_vector<double>();
  for (size_t i = 0; i < values.size(); ++i) {
    const double u = double(unit_float(philox4x32(key, i / 4)[i % 4]));
    values[i] = u >= p ? values[i] / (1 - p) : 0;
  }
  return values;
}

TEST(Dropout, MatchesTheDefinitionOnEveryInstructionSet) {
  const auto chosen = kernels::simd_level();
  for (int level = 0; level <= int(kernels::best_simd_level()); ++level) {
    kernels::force_simd_level(kernels::SimdLevel(level));
    for (const Shape& shape :
         std::vector<Shape>{{1}, {}, {7}, {256}, {3, 5, 67}, {70001}, {0, 3}}) {
      for (const double p : {0.0, 1e-8, 0.1, 0.5, 0.999}) {
        const Tensor x = normal(shape);
        EXPECT_TRUE(near(ops::dropout(x, {p, kKey}), reference(x, p, kKey), {1e-300, 1e-14})) << p;
        EXPECT_TRUE(bit_equal(ops::dropout(strided(x), {p, kKey}), ops::dropout(x, {p, kKey})));
      }
    }
  }
  kernels::force_simd_level(chosen);
}

TEST(Dropout, BackwardDrawsTheSameMask) {
  const Tensor x = autograd::set_requires_grad(full({1000}, 1.0));
  const Tensor y = ops::dropout(x, {0.3, kKey});
  EXPECT_EQ(autograd::graph_report(y)[0].saved_bytes, 0u);
  autograd::backward(y, full({1000}, 1.0));
  EXPECT_TRUE(bit_equal(autograd::grad(x), y));
  EXPECT_TRUE(gradcheck_passes(
      [](const std::vector<Tensor>& v) {
        return std::vector{ops::dropout(v[0], {0.3, kKey})};
      },
      {normal({7, 31})}));
}

TEST(Dropout, DTypesAndThreads) {
  const auto function = [](const std::vector<Tensor>& x) {
    return std::vector{ops::dropout(x[0], {0.25, kKey})};
  };
  expect_dtypes_agree(function, {normal({3, 301})}, 1);
  expect_same_bits_for_any_threads(function, {normal({70003})});
}

// 10^6 draws: the kept fraction is off by 5 standard errors once in 1.7 million seeds.
TEST(Dropout, KeepsTheMean) {
  const Tensor y = ops::dropout(full({1000000}, 1.0), {0.3, kKey});
  double sum = 0;
  for (const double value : values_of(y)) sum += value;
  EXPECT_NEAR(sum / 1e6, 1.0, 5 * std::sqrt(0.3 / 0.7 / 1e6));
}

TEST(Dropout, PrefixesAgreeAndStreamsDiffer) {
  const Tensor x = full({500}, 1.0);
  const Tensor y = ops::dropout(x, {0.5, kKey});
  EXPECT_TRUE(bit_equal(ops::dropout(full({123}, 1.0), {0.5, kKey}), ops::slice(y, 0, 0, 123)));
  EXPECT_FALSE(bit_equal(ops::dropout(x, {0.5, {kKey.seed, kKey.stream + 1}}), y));
  EXPECT_FALSE(bit_equal(ops::dropout(x, {0.5, {kKey.seed + 1, kKey.stream}}), y));
}

// u >= p keeps: at p = u the element stays, one step above it goes.
TEST(Dropout, TheThresholdIsExact) {
  const double u = double(unit_float(philox4x32(kKey, 0)[1]));
  const Tensor x = full({2}, 1.0, {DType::f64, {}});
  EXPECT_NE(values_of(ops::dropout(x, {u, kKey}))[1], 0);
  EXPECT_EQ(values_of(ops::dropout(x, {std::nextafter(u, 1.0), kKey}))[1], 0);
}

TEST(Dropout, ZeroProbabilityIsTheIdentity) {
  const Tensor x = autograd::set_requires_grad(normal({3}));
  EXPECT_TRUE(ops::dropout(x, {}).same_as(x));
}

TEST(Dropout, Throws) {
  const Tensor x = zeros({2});
  SLUICE_EXPECT_THROW(ops::dropout(x, {1.0, kKey}), ArgumentError, "p must be in [0, 1), got 1");
  SLUICE_EXPECT_THROW(
      ops::dropout(x, {-0.1, kKey}), ArgumentError, "p must be in [0, 1), got -0.1");
  SLUICE_EXPECT_THROW(ops::dropout(x, {NAN, kKey}), ArgumentError, "p must be in [0, 1), got nan");
  SLUICE_EXPECT_THROW(
      ops::dropout(counting({2}, DType::i32), {}), DTypeError, "x must be floating");
  SLUICE_EXPECT_THROW(ops::dropout({}, {}), ArgumentError, "x must be a tensor");
}

}  // namespace
}  // namespace sluice::testing
