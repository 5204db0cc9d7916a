#include "ops/attention.h"

#include <gtest/gtest.h>

#include "engine/context.h"
#include "engine/errors.h"
#include "engine/memory.h"
#include "kernels/simd/dispatch.h"
#include "tests/ops/attention_cases.h"

namespace sluice {
namespace {

using namespace testing;
using ops::attention;
using ops::attention_with_lse;
using ops::AttentionOptions;

constexpr TensorOptions kF64{DType::f64, {}};

AttentionFunction with(const AttentionOptions& options) {
  return [options](const Tensor& q, const Tensor& k, const Tensor& v) {
    return attention_with_lse(q, k, v, options);
  };
}

TEST(Attention, MatchesItsEquationsInEveryDType) {
  for (const AttentionCase& c : attention_cases()) expect_matches_reference(c, with(c.options));
}

TEST(Attention, MatchesItsEquationsOnEveryInstructionSet) {
  const auto best = kernels::simd_level();
  for (const auto level : {kernels::SimdLevel::baseline, kernels::SimdLevel::avx2}) {
    if (level > best) continue;
    kernels::force_simd_level(level);
    for (const AttentionCase& c : attention_cases()) {
      if (c.Tq < 600) expect_matches_reference(c, with(c.options));
    }
  }
  kernels::force_simd_level(best);
}

TEST(Attention, GradientsMatchFiniteDifferences) {
  for (const bool causal : {true, false}) {
    AttentionOptions options{.causal = causal};
    options.segments = from_values(std::vector<int32_t>{1, 1, 1, 2, 2, 2, 2}, {1, 7});
    options.keep = from_values(std::vector<uint8_t>{1, 0, 1, 1, 1, 1, 1}, {1, 7});
    options.queries = {ints({0, 2, 3, 4}), ints({0, 4})};
    EXPECT_TRUE(gradcheck_passes(
        [&](const auto& in) {
          const auto result = attention_with_lse(in[0], in[1], in[2], options);
          // Rows without a key have an lse of -infinity, which no difference can be taken of.
          return std::vector{result.out, attention(in[0], in[1], in[2], {.causal = causal})};
        },
        {randn({1, 2, 5, 3}, 1, 0, kF64),
         randn({1, 1, 7, 3}, 1, 1, kF64),
         randn({1, 1, 7, 3}, 1, 2, kF64)}));
  }
  EXPECT_TRUE(gradcheck_passes(
      [](const auto& in) {
        const auto result = attention_with_lse(in[0], in[1], in[2]);
        return std::vector{result.out, result.lse};
      },
      {randn({2, 2, 6, 3}, 2, 0, kF64),
       randn({2, 2, 6, 3}, 2, 1, kF64),
       randn({2, 2, 6, 3}, 2, 2, kF64)}));
}

TEST(Attention, OnlyTheGradientsThatAreWanted) {
  const AttentionCase c{"", 1, 2, 1, 90, 90, 8};
  const AttentionInputs in = inputs_of(c, DType::f32, DType::f32);
  const AttentionRun all = run_attention(with({}), in);
  for (int wanted = 0; wanted < 3; ++wanted) {
    Tensor leaves[] = {in.q.detach(), in.k.detach(), in.v.detach()};
    autograd::set_requires_grad(leaves[wanted]);
    const auto result = attention_with_lse(leaves[0], leaves[1], leaves[2]);
    autograd::backward(result.out, in.grad_out, {.retain_graph = true});
    autograd::backward(result.lse, in.grad_lse);
    const Tensor expected[] = {all.grad_q, all.grad_k, all.grad_v};
    EXPECT_TRUE(bit_equal(autograd::grad(leaves[wanted]), expected[wanted]));
  }
}

TEST(Attention, ThreadCountsGiveTheSameBits) {
  for (const AttentionCase& c : attention_cases()) {
    const AttentionInputs in = inputs_of(c, DType::f32, DType::f32);
    std::vector<AttentionRun> runs;
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      CpuContext context{pool};
      const ContextScope scope(context);
      runs.push_back(run_attention(with(c.options), in));
    }
    expect_same_bits(runs[1], runs[0], c.name + " on 2 threads");
    expect_same_bits(runs[2], runs[0], c.name + " on 3 threads");
  }
}

TEST(Attention, BatchNeighboursDoNotChangeEachOther) {
  const AttentionCase both{"", 5, 4, 2, 530, 530, 16};
  const AttentionInputs in = inputs_of(both, DType::f32, DType::f32);
  const AttentionRun run = run_attention(with({}), in);
  const auto entry = [](const Tensor& t, int64_t b) {
    std::vector<int64_t> dims(t.shape().dims().begin(), t.shape().dims().end());
    dims[0] = 1;
    return t.alias(Shape(dims), t.strides(), t.offset() + b * t.strides()[0]);
  };
  for (const int64_t b : {0, 4}) {
    const AttentionRun alone = run_attention(
        with({}),
        {entry(in.q, b),
         entry(in.k, b),
         entry(in.v, b),
         entry(in.grad_out, b),
         entry(in.grad_lse, b)});
    expect_same_bits(
        alone,
        {entry(run.out, b),
         entry(run.lse, b),
         entry(run.grad_q, b),
         entry(run.grad_k, b),
         entry(run.grad_v, b)},
        "entry " + std::to_string(b));
  }
}

TEST(Attention, ListedQueriesAndLiveHeadsGiveTheDenseRows) {
  AttentionCase c{"", 2, 4, 2, 203, 203, 16};
  AttentionInputs in = inputs_of(c, DType::f32, DType::f32);
  const AttentionRun dense = run_attention(with({}), in);
  c.options.queries = some_queries({203, 203, 203});
  c.options.queries.offsets = ints({0, 50, 90});
  c.options.live_heads = from_values(std::vector<int32_t>{0, 1, 0, 2, 1, 0}, {3, 2});
  c.options.queries.positions = [&] {
    std::vector<int32_t> positions;
    for (int32_t n = 0; n < 50; ++n) positions.push_back(4 * n + 1);
    for (int32_t n = 0; n < 40; ++n) positions.push_back(60 + n + n / 10 * 9);
    return ints(positions);
  }();
  const AttentionMask mask = c.mask();
  const AttentionRun some = run_attention(with(c.options), in);
  const auto rows = [&](const Tensor& tensor) {
    std::vector<float> kept = to_contiguous(tensor).to_vector<float>();
    for (size_t i = 0; i < kept.size(); ++i) {
      const int64_t row = int64_t(i) / c.D;
      if (!mask.computes(row / c.Tq / c.H, row / c.Tq % c.H, row % c.Tq)) kept[i] = 0;
    }
    return from_values(kept, tensor.shape());
  };
  EXPECT_TRUE(bit_equal(some.out, rows(dense.out)));
  EXPECT_TRUE(bit_equal(some.grad_q, rows(dense.grad_q)));
}

TEST(Attention, CausalOutputIgnoresTheFuture) {
  const AttentionCase c{"", 1, 2, 1, 150, 150, 16};
  const AttentionInputs in = inputs_of(c, DType::f32, DType::f32);
  const Tensor before = attention(in.q, in.k, in.v);
  const Tensor k = clone(in.k);
  const Tensor v = clone(in.v);
  for (const Tensor& changed : {k, v}) {
    for (int64_t t = 77; t < 150; ++t) fill(changed.alias({16}, {1}, t * 16), 1e3);
  }
  const Tensor after = attention(in.q, k, v);
  const auto past = [](const Tensor& t) {
    return t.alias({1, 2, 77, 16}, t.strides(), t.offset());
  };
  EXPECT_TRUE(bit_equal(past(after), past(before)));
  EXPECT_FALSE(bit_equal(after, before));
}

TEST(Attention, OutputLiesTokenByToken) {
  const Tensor q = randn({2, 3, 10, 8}, 1);
  const Tensor out = attention(q, q, q);
  EXPECT_EQ(out.stride(0), 240);
  EXPECT_EQ(out.stride(1), 8);
  EXPECT_EQ(out.stride(2), 24);
}

TEST(Attention, RefusesWhatDoesNotFit) {
  const Tensor q = randn({2, 4, 6, 8}, 1);
  const Tensor k = randn({2, 2, 7, 8}, 1);
  const auto run = [&](const AttentionOptions& options) { return attention(q, k, k, options); };
  SLUICE_EXPECT_THROW(attention(randn({4, 6, 8}, 1), k, k), ShapeError, "q must have rank 4");
  SLUICE_EXPECT_THROW(attention(q, randn({2, 3, 7, 8}, 1), k), ShapeError, "v must have shape");
  const Tensor three = randn({2, 3, 7, 8}, 1);
  SLUICE_EXPECT_THROW(
      attention(q, three, three), ShapeError, "must divide the 4 heads of q, got 3");
  SLUICE_EXPECT_THROW(attention(q, randn({2, 2, 7, 9}, 1), k), ShapeError, "k must have shape");
  const Tensor wide = empty({1, 1, 1, 257});
  SLUICE_EXPECT_THROW(attention(wide, wide, wide), ShapeError, "must be in 1..256, got 257");
  SLUICE_EXPECT_THROW(attention(q, to_dtype(k, DType::f64), k), DTypeError, "k must be f32");
  const Tensor whole = empty({2, 4, 6, 8}, {DType::i32, {}});
  SLUICE_EXPECT_THROW(attention(whole, k, k), DTypeError, "q must be floating");
  const Tensor elsewhere = empty({2, 2, 7, 8}, {DType::f32, {DeviceType::simt}});
  SLUICE_EXPECT_THROW(attention(q, elsewhere, k), DeviceError, "k must be on cpu");
  SLUICE_EXPECT_THROW(
      run({.segments = ints({1, 2})}), ShapeError, "segments must have shape (2, 7)");
  SLUICE_EXPECT_THROW(run({.keep = empty({2, 7})}), DTypeError, "keep must be u8");
  SLUICE_EXPECT_THROW(
      run({.query_lengths = ints({6, 7})}), ArgumentError, "query_lengths must be in 0..6, got 7");
  SLUICE_EXPECT_THROW(
      run({.key_lengths = ints({-1, 7})}), ArgumentError, "key_lengths must be in 0..7, got -1");
  SLUICE_EXPECT_THROW(
      run({.query_offsets = ints({0, 1})}), ArgumentError, "must be given together");
  SLUICE_EXPECT_THROW(
      run({.query_offsets = ints({0, 1}), .key_offsets = ints({0, 1})}),
      ArgumentError,
      "must come with B == 1");
  const Tensor one = randn({1, 2, 7, 8}, 1);
  const auto packed = [&](std::vector<int32_t> queries, std::vector<int32_t> keys) {
    return attention(one, one, one, {.query_offsets = ints(queries), .key_offsets = ints(keys)});
  };
  SLUICE_EXPECT_THROW(packed({0, 3, 2}, {0, 1, 2}), ArgumentError, "must rise to at most 7");
  SLUICE_EXPECT_THROW(packed({0, 8}, {0, 1}), ArgumentError, "must rise to at most 7, got 8");
  SLUICE_EXPECT_THROW(packed({1, 3}, {0, 1}), ArgumentError, "must start with 0");
  SLUICE_EXPECT_THROW(packed({0, 3}, {0, 1, 2}), ShapeError, "must be of one length");
  SLUICE_EXPECT_THROW(packed({}, {}), ShapeError, "must have shape (sequences + 1)");
  const auto live = [&](std::vector<int32_t> pair) {
    return run({.live_heads = from_values(pair, {1, 2})});
  };
  SLUICE_EXPECT_THROW(live({2, 0}), ArgumentError, "live_heads must name a sequence below 2");
  SLUICE_EXPECT_THROW(live({0, -1}), ArgumentError, "live_heads must name");
  SLUICE_EXPECT_THROW(run({.live_heads = ints({0, 1})}), ShapeError, "live_heads must have shape");
  const auto listed = [&](std::vector<int32_t> positions, std::vector<int32_t> offsets) {
    return run({.queries = {ints(positions), ints(offsets)}});
  };
  SLUICE_EXPECT_THROW(listed({0, 6}, {0, 1, 2}), ArgumentError, "must rise within 0..5");
  SLUICE_EXPECT_THROW(listed({3, 3}, {0, 2, 2}), ArgumentError, "got 3 after 3");
  SLUICE_EXPECT_THROW(listed({0, 1}, {0, 3, 2}), ArgumentError, "queries.offsets must rise");
  SLUICE_EXPECT_THROW(listed({0, 1}, {0, 2}), ShapeError, "queries.offsets must have shape (3)");
  SLUICE_EXPECT_THROW(
      run({.queries = {ints({0}), Tensor()}}), ArgumentError, "both positions and offsets");
}

}  // namespace
}  // namespace sluice
