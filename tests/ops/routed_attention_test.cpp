#include "ops/routed_attention.h"

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "ops/attention.h"
#include "ops/linear_attention.h"
#include "ops/sliding_window_attention.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"
#include "tests/support/routing.h"

namespace sluice {
namespace {

using ops::routed_attention;
using ops::RoutedAttentionOptions;
using ops::RoutedForm;
using ops::routing_index;

constexpr TensorOptions kF64{DType::f64, {}};
constexpr RoutedForm kForms[] = {RoutedForm::fused, RoutedForm::unfused};

struct Case {
  int64_t batch, heads, kv_heads, queries, keys, width, window;
};
// One token; less than a tile; whole tiles; several with a ragged tail; more keys than queries.
const Case kCases[] = {
    {1, 1, 1, 1, 1, 4, 1},
    {2, 2, 1, 9, 9, 8, 3},
    {1, 3, 3, 64, 64, 16, 16},
    {2, 4, 2, 203, 203, 8, 31},
    {2, 2, 2, 40, 75, 5, 500}};

// (B, H, T, D) views of (B, T, H, D) memory, as a projection leaves them.
Tensor random_heads(int64_t batch, int64_t heads, int64_t tokens, int64_t width, uint64_t seed) {
  const Tensor memory = randn({batch, tokens, heads, width}, seed, 0, kF64);
  const int64_t row = heads * width;
  return memory.alias({batch, heads, tokens, width}, {tokens * row, width, row, 1}, 0);
}

std::vector<Tensor> operands(const Case& c, uint64_t seed = 1) {
  return {
      random_heads(c.batch, c.heads, c.queries, c.width, seed),
      random_heads(c.batch, c.kv_heads, c.keys, c.width, seed + 1),
      random_heads(c.batch, c.kv_heads, c.keys, c.width, seed + 2)};
}

autograd::GradcheckFunction routed(const Tensor& ids, const RoutedAttentionOptions& options) {
  const auto index = routing_index(ids, 3);
  return [=](const std::vector<Tensor>& in) {
    return std::vector{routed_attention(in[0], in[1], in[2], index, options)};
  };
}

// `value` where the token went to `expert`, else 0.
Tensor only_rows(const Tensor& value, const Tensor& ids, int32_t expert) {
  Tensor out = clone(value);
  for (int64_t b = 0; b < ids.size(0); ++b) {
    for (int64_t t = 0; t < ids.size(1); ++t) {
      if (ids.data<int32_t>()[b * ids.size(1) + t] == expert) continue;
      fill(
          out.alias(
              {out.size(1), out.size(3)},
              {out.stride(1), 1},
              out.offset() + b * out.stride(0) + t * out.stride(2)),
          0);
    }
  }
  return out;
}

// The soft mixture of the three dense algorithms with one-hot weights, forward and backward.
testing::GradRun one_hot_mixture(
    const std::vector<Tensor>& inputs, const Tensor& ids, const RoutedAttentionOptions& options) {
  ops::SlidingWindow window;
  static_cast<ops::AttentionOptions&>(window) = options;
  window.window = options.window;
  const autograd::GradcheckFunction experts[] = {
      [&](const auto& in) { return std::vector{ops::attention(in[0], in[1], in[2], options)}; },
      [&](const auto& in) {
        return std::vector{ops::linear_attention(in[0], in[1], in[2], options)};
      },
      [&](const auto& in) {
        return std::vector{ops::sliding_window_attention(in[0], in[1], in[2], window)};
      }};
  testing::GradRun sum;
  sum.outputs = {zeros(inputs[0].shape(), kF64)};
  for (const Tensor& input : inputs) sum.grads.push_back(zeros(input.shape(), kF64));
  const Tensor upstream = randn(inputs[0].shape(), 7, 0, kF64);
  for (int32_t e = 0; e < 3; ++e) {
    std::vector<Tensor> leaves;
    for (const Tensor& input : inputs) {
      leaves.push_back(autograd::set_requires_grad(clone(input)));
    }
    const Tensor out = experts[e](leaves)[0];
    accumulate_into(sum.outputs[0], only_rows(out.detach(), ids, e));
    autograd::backward(out, only_rows(upstream, ids, e));
    for (size_t i = 0; i < 3; ++i) accumulate_into(sum.grads[i], autograd::grad(leaves[i]));
  }
  return sum;
}

TEST(RoutedAttention, IsTheSoftMixtureWithOneHotWeights) {
  for (const Case& c : kCases) {
    const auto inputs = operands(c);
    for (const bool causal : {true, false}) {
      for (const bool drop : {true, false}) {
        const Tensor ids = testing::random_ids({c.batch, c.queries}, 3, 4, drop);
        RoutedAttentionOptions options;
        options.window = c.window;
        options.causal = causal;
        const auto expected = one_hot_mixture(inputs, ids, options);
        for (const RoutedForm form : kForms) {
          options.form = form;
          const auto run =
              testing::run_with_grads(routed(ids, options), inputs, DType::f64, DType::f64);
          const std::string what = std::to_string(c.queries) + (causal ? " causal" : " full");
          EXPECT_TRUE(testing::near(run.outputs[0], expected.outputs[0], {1e-12, 1e-12}, what));
          for (size_t i = 0; i < 3; ++i) {
            EXPECT_TRUE(testing::near(run.grads[i], expected.grads[i], {1e-11, 1e-11}, what));
          }
        }
      }
    }
  }
}

TEST(RoutedAttention, MasksActOnEveryExpert) {
  const Case c{2, 2, 1, 70, 70, 4, 9};
  const auto inputs = operands(c);
  const Tensor ids = testing::random_ids({c.batch, c.queries}, 3, 6);
  RoutedAttentionOptions options;
  options.window = c.window;
  std::vector<int32_t> segments(140);
  std::vector<uint8_t> keep(140);
  for (int i = 0; i < 140; ++i) {
    segments[size_t(i)] = i / 23;
    keep[size_t(i)] = i % 7 != 3;
  }
  options.segments = from_values(segments, {2, 70});
  options.keep = from_values(keep, {2, 70});
  options.scale = 0.7;
  const auto expected = one_hot_mixture(inputs, ids, options);
  for (const RoutedForm form : kForms) {
    options.form = form;
    const auto run = testing::run_with_grads(routed(ids, options), inputs, DType::f64, DType::f64);
    EXPECT_TRUE(testing::near(run.outputs[0], expected.outputs[0], {1e-12, 1e-12}));
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(testing::near(run.grads[i], expected.grads[i], {1e-11, 1e-11}));
    }
  }
}

TEST(RoutedAttention, PaddingIsDropped) {
  const Case c{2, 2, 1, 70, 70, 4, 9};
  const auto inputs = operands(c);
  const Tensor ids = testing::random_ids({c.batch, c.queries}, 3, 6);
  for (int64_t t = 41; t < 70; ++t) ids.data<int32_t>()[70 + t] = -1;
  RoutedAttentionOptions options;
  options.window = c.window;
  options.query_lengths = from_values(std::vector<int32_t>{70, 41}, {2});
  options.key_lengths = options.query_lengths;
  const auto expected = one_hot_mixture(inputs, ids, options);
  // The padded sequence alone, cut to its length.
  const auto cut = [](const Tensor& x) {
    return clone(x.alias({1, x.size(1), 41, x.size(3)}, x.strides(), x.offset() + x.stride(0)));
  };
  const Tensor alone_ids = clone(ids.alias({1, 41}, {41, 1}, 70));
  RoutedAttentionOptions whole;
  whole.window = c.window;
  const Tensor alone =
      routed(alone_ids, whole)({cut(inputs[0]), cut(inputs[1]), cut(inputs[2])})[0];
  for (const RoutedForm form : kForms) {
    options.form = form;
    const auto run = testing::run_with_grads(routed(ids, options), inputs, DType::f64, DType::f64);
    EXPECT_TRUE(testing::near(run.outputs[0], expected.outputs[0], {1e-12, 1e-12}));
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(testing::near(run.grads[i], expected.grads[i], {1e-11, 1e-11}));
    }
    EXPECT_TRUE(testing::near(cut(run.outputs[0]), alone, {1e-12, 1e-12}, "alone"));
    for (const int32_t id : {0, 1, 2}) {
      const Tensor routed_padding = clone(ids);
      routed_padding.data<int32_t>()[70 + 50] = id;
      SLUICE_EXPECT_THROW(
          routed(routed_padding, options)(inputs),
          ArgumentError,
          "routed_attention: queries.positions must rise within 0..40 in a sequence, got 50");
    }
  }
}

TEST(RoutedAttention, HeadsAreGatedAndSkipped) {
  const Case c{2, 2, 1, 9, 9, 3, 4};
  const Tensor ids = testing::random_ids({2, 9}, 3, 6);
  const auto index = routing_index(ids, 3);
  RoutedAttentionOptions options;
  options.window = c.window;
  options.live_heads = from_values(std::vector<int32_t>{0, 1, 1, 0}, {2, 2});
  const auto expected = one_hot_mixture(operands(c), ids, options);
  for (const RoutedForm form : kForms) {
    options.form = form;
    const auto run =
        testing::run_with_grads(routed(ids, options), operands(c), DType::f64, DType::f64);
    EXPECT_TRUE(testing::near(run.outputs[0], expected.outputs[0], {1e-12, 1e-12}));
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(testing::near(run.grads[i], expected.grads[i], {1e-11, 1e-11}));
    }
    RoutedAttentionOptions gated = options;
    auto inputs = operands(c);
    inputs.push_back(randn({2}, 3, 0, kF64));
    EXPECT_TRUE(testing::gradcheck_passes(
        [&](const auto& in) {
          gated.head_gate = in[3];
          return std::vector{routed_attention(in[0], in[1], in[2], index, gated)};
        },
        inputs,
        {.full_jacobian = 100}));
  }
}

TEST(RoutedAttention, FiniteDifferencesDTypesAndThreads) {
  for (const RoutedForm form : kForms) {
    RoutedAttentionOptions options;
    options.window = 5;
    options.form = form;
    const Case small{1, 2, 1, 11, 11, 3, 5};
    EXPECT_TRUE(testing::gradcheck_passes(
        routed(testing::random_ids({1, 11}, 3, 2), options), operands(small)));
    const Case large{2, 4, 2, 203, 203, 16, 5};
    const auto function = routed(testing::random_ids({2, 203}, 3, 3), options);
    testing::expect_dtypes_agree(function, operands(large), 203);
    testing::expect_same_bits_for_any_threads(function, operands(large));
  }
}

// The three experts' contributions meet in f32 and are rounded once. Looked at in the gradient of
// v, which the rounding of the saved output does not enter.
TEST(RoutedAttention, GradientsOfValuesAreSummedInF32) {
  const Case c{1, 2, 2, 150, 150, 16, 30};
  RoutedAttentionOptions options;
  options.window = c.window;
  const auto function = routed(testing::random_ids({1, 150}, 3, 5), options);
  const auto run = testing::run_with_grads(function, operands(c), DType::bf16, DType::bf16);
  const auto truth = testing::run_with_grads(function, operands(c), DType::f64, DType::bf16);
  EXPECT_TRUE(testing::near(run.grads[2], truth.grads[2], {1e-5, 1.0 / 256}));
}

TEST(RoutedAttention, OneExpertForAllIsThatAlgorithmBitForBit) {
  const Case c{2, 2, 2, 130, 130, 8, 20};
  const auto in = operands(c);
  RoutedAttentionOptions options;
  options.window = c.window;
  ops::SlidingWindow window;
  window.window = c.window;
  const Tensor expected[] = {
      ops::attention(in[0], in[1], in[2]),
      ops::linear_attention(in[0], in[1], in[2]),
      ops::sliding_window_attention(in[0], in[1], in[2], window)};
  for (int e = 0; e < 3; ++e) {
    const auto index = routing_index(full({2, 130}, e, {DType::i32, {}}), 3);
    for (const RoutedForm form : kForms) {
      options.form = form;
      EXPECT_TRUE(testing::bit_equal(
          routed_attention(in[0], in[1], in[2], index, options), expected[e], std::to_string(e)));
    }
  }
}

// Case E6 and dropped tokens: rows and gradients are zeros, not what lay in memory.
TEST(RoutedAttention, NothingRouted) {
  RoutedAttentionOptions options;
  options.window = 4;
  for (const RoutedForm form : kForms) {
    options.form = form;
    const Case c{2, 2, 1, 6, 6, 4, 4};
    const auto run = testing::run_with_grads(
        routed(full({2, 6}, -1, {DType::i32, {}}), options), operands(c), DType::f32, DType::f32);
    for (const Tensor& result : {run.outputs[0], run.grads[0], run.grads[1], run.grads[2]}) {
      for (const float value : result.to_vector<float>()) ASSERT_EQ(value, 0);
    }
    const Case none{2, 2, 1, 0, 0, 4, 4};
    const auto empty_run = testing::run_with_grads(
        routed(empty({2, 0}, {DType::i32, {}}), options), operands(none), DType::f32, DType::f32);
    EXPECT_EQ(empty_run.outputs[0].shape(), (Shape{2, 2, 0, 4}));
  }
}

TEST(RoutedAttention, IgnoresTheFuture) {
  const Case c{1, 2, 1, 90, 90, 4, 7};
  const Tensor ids = testing::random_ids({1, 90}, 3, 9);
  RoutedAttentionOptions options;
  options.window = c.window;
  for (const RoutedForm form : kForms) {
    options.form = form;
    const auto in = operands(c);
    const Tensor before = routed(ids, options)(in)[0];
    for (const Tensor& tensor : in) {
      fill(
          tensor.alias(
              {tensor.size(1), 30, 4},
              {tensor.stride(1), tensor.stride(2), 1},
              60 * tensor.stride(2)),
          3);
    }
    const Tensor after = routed(ids, options)(in)[0];
    const auto past = [](const Tensor& x) {
      return x.alias({1, 2, 60, 4}, x.strides(), x.offset());
    };
    EXPECT_TRUE(testing::bit_equal(past(after), past(before)));
  }
}

TEST(RoutedAttention, OutputIsStoredTokenByToken) {
  const Case c{2, 3, 1, 10, 10, 4, 3};
  const auto in = operands(c);
  const auto index = routing_index(testing::random_ids({2, 10}, 3, 1), 3);
  for (const RoutedForm form : kForms) {
    const Tensor out = routed_attention(in[0], in[1], in[2], index, {{}, 3, form});
    EXPECT_EQ(out.stride(1), 4);
    EXPECT_EQ(out.stride(2), 12);
  }
}

TEST(RoutedAttention, Throws) {
  const auto in = operands({2, 2, 1, 6, 6, 4, 4});
  const auto ids = testing::random_ids({2, 6}, 3, 1);
  const auto index = routing_index(ids, 3);
  const RoutedAttentionOptions options{{}, 4};
  auto call = [&](const ops::RoutingIndex& by, const RoutedAttentionOptions& with) {
    return routed_attention(in[0], in[1], in[2], by, with);
  };
  SLUICE_EXPECT_THROW(
      call(index, {{}, 0}), ArgumentError, "routed_attention: window must be > 0, got 0");
  SLUICE_EXPECT_THROW(call(routing_index(ids, 4), options), ArgumentError, "over 3 experts");
  SLUICE_EXPECT_THROW(
      call(routing_index(zeros({2, 6, 2}, {DType::i32, {}}), 3), options),
      ArgumentError,
      "1 choice per token, got 3 and 2");
  SLUICE_EXPECT_THROW(
      call(routing_index(testing::random_ids({2, 5}, 3, 1), 3), options),
      ShapeError,
      "routed_attention: q must have shape (2, H, 5, D), as the index has, got (2, 2, 6, 4)");
  SLUICE_EXPECT_THROW(
      routed_attention(in[0], in[1], zeros({2, 1, 7, 4}, kF64), index, options),
      ShapeError,
      "routed_attention: v");
  SLUICE_EXPECT_THROW(
      routed_attention(in[0], to_dtype(in[1], DType::f32), in[2], index, options),
      DTypeError,
      "routed_attention: k must be f64");
  SLUICE_EXPECT_THROW(
      routed_attention(Tensor(), in[1], in[2], index, options),
      ArgumentError,
      "q must be a tensor");
  RoutedAttentionOptions listed = options;
  listed.queries = index.queries(0);
  SLUICE_EXPECT_THROW(call(index, listed), ArgumentError, "queries, query_offsets");
}

}  // namespace
}  // namespace sluice
