#include "ops/sliding_window_attention.h"

#include <gtest/gtest.h>

#include "engine/context.h"
#include "engine/errors.h"
#include "tests/ops/attention_cases.h"

namespace sluice {
namespace {

using namespace testing;
using ops::AttentionOptions;
using ops::sliding_window_attention;
using ops::SlidingWindow;

AttentionFunction with(const AttentionOptions& options, int64_t window) {
  return [=](const Tensor& q, const Tensor& k, const Tensor& v) {
    return ops::AttentionOutput{sliding_window_attention(q, k, v, {options, window}), {}};
  };
}

// (1, 1, T, D) with every entry of row t equal to t, and zeros of that shape.
Tensor rising(int64_t tokens, int64_t width, DType dtype = DType::f32) {
  std::vector<double> values;
  for (int64_t t = 0; t < tokens; ++t) values.insert(values.end(), size_t(width), double(t));
  return to_dtype(from_values(values, {1, 1, tokens, width}), dtype);
}

TEST(SlidingWindowAttention, MatchesItsEquationsInEveryDType) {
  for (const AttentionCase& c : attention_cases()) {
    expect_matches_reference(c, with(c.options, 20), 20);
  }
  const AttentionCase plain{"wider than a tile", 2, 2, 1, 203, 203, 16};
  for (const int64_t window : {1, 63, 64, 65, 129}) {
    for (const bool causal : {true, false}) {
      const AttentionOptions options{.causal = causal};
      AttentionCase c = plain;
      c.options = options;
      expect_matches_reference(c, with(options, window), window);
    }
  }
}

TEST(SlidingWindowAttention, GradientsMatchFiniteDifferences) {
  for (const bool causal : {true, false}) {
    EXPECT_TRUE(gradcheck_passes(
        [&](const auto& in) {
          return std::vector{
              sliding_window_attention(in[0], in[1], in[2], {{.causal = causal}, 3})};
        },
        {randn({2, 2, 7, 3}, 1, 0, {DType::f64, {}}),
         randn({2, 1, 9, 3}, 1, 1, {DType::f64, {}}),
         randn({2, 1, 9, 3}, 1, 2, {DType::f64, {}})}));
  }
}

TEST(SlidingWindowAttention, WideWindowGivesTheBitsOfFullAttention) {
  for (const AttentionCase& c : attention_cases()) {
    const AttentionInputs in = inputs_of(c, DType::f32, DType::f32);
    const AttentionRun full = run_attention(
        [&](const auto& q, const auto& k, const auto& v) {
          return ops::AttentionOutput{ops::attention(q, k, v, c.options), {}};
        },
        in);
    // Only a window of all positions that queries stand at covers every pair.
    for (const int64_t window : {c.Tq + c.Tk + 1, std::numeric_limits<int64_t>::max()}) {
      expect_same_bits(run_attention(with(c.options, window), in), full, c.name);
    }
  }
}

TEST(SlidingWindowAttention, ThreadCountsGiveTheSameBits) {
  const AttentionCase c{"", 1, 2, 1, 1030, 1030, 16};
  const AttentionInputs in = inputs_of(c, DType::f32, DType::f32);
  std::vector<AttentionRun> runs;
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    CpuContext context{pool};
    const ContextScope scope(context);
    runs.push_back(run_attention(with({}, 40), in));
  }
  expect_same_bits(runs[1], runs[0], "2 threads");
  expect_same_bits(runs[2], runs[0], "3 threads");
}

// Cases B1 and B4: one key too many or too few at any window near a vector, group or block.
TEST(SlidingWindowAttention, CausalWindowAveragesExactlyItsKeys) {
  for (const int64_t T : {8, 300}) {
    for (const int64_t W :
         {1, 4, 15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257, 299, 300, 301}) {
      const Tensor zero = zeros({1, 1, T, 8});
      const Tensor v = autograd::set_requires_grad(rising(T, 8));
      const Tensor out = sliding_window_attention(zero, zero, v, {{}, W});
      autograd::backward(out, full({1, 1, T, 8}, 1));
      std::vector<double> mean, grad(size_t(T * 8), 0);
      for (int64_t t = 0; t < T; ++t) {
        const int64_t first = std::max<int64_t>(0, t - W + 1);
        mean.insert(mean.end(), 8, double(first + t) / 2);
        for (int64_t i = first * 8; i < (t + 1) * 8; ++i)
          grad[size_t(i)] += 1.0 / double(t - first + 1);
      }
      EXPECT_TRUE(near(out, mean, {1e-6, 1e-6}, "W = " + std::to_string(W)));
      EXPECT_TRUE(near(autograd::grad(v), grad, {1e-6, 1e-6}, "W = " + std::to_string(W)));
    }
  }
}

// Case B6.
TEST(SlidingWindowAttention, NonCausalWindowIsARadius) {
  const Tensor zero = zeros({1, 1, 4, 2});
  const Tensor out = sliding_window_attention(zero, zero, rising(4, 2), {{.causal = false}, 1});
  EXPECT_TRUE(near(out, {.5, .5, 1, 1, 2, 2, 2.5, 2.5}, {1e-6, 1e-6}));
}

// Case B3: a window that is not positive must not come to mean none.
TEST(SlidingWindowAttention, RefusesWhatDoesNotFit) {
  const Tensor q = randn({1, 2, 4, 8}, 1);
  for (const int64_t window : {0, -4}) {
    SLUICE_EXPECT_THROW(
        sliding_window_attention(q, q, q, {{}, window}), ArgumentError, "window must be > 0");
  }
  SLUICE_EXPECT_THROW(
      sliding_window_attention(q, q, randn({1, 2, 5, 8}, 1), {{}, 4}),
      ShapeError,
      "sliding_window_attention: v must have shape");
}

}  // namespace
}  // namespace sluice
