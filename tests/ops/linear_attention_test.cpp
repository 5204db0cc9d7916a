#include "ops/linear_attention.h"

#include <gtest/gtest.h>

#include "engine/context.h"
#include "engine/errors.h"
#include "kernels/simd/dispatch.h"
#include "tests/ops/attention_cases.h"

namespace sluice {
namespace {

using namespace testing;
using ops::AttentionOptions;
using ops::linear_attention;

constexpr TensorOptions kF64{DType::f64, {}};

AttentionFunction with(const AttentionOptions& options) {
  return [options](const Tensor& q, const Tensor& k, const Tensor& v) {
    return ops::AttentionOutput{linear_attention(q, k, v, options), Tensor()};
  };
}

/// (times, ends.back()) ids of segments that end there.
Tensor segments_up_to(const std::vector<int64_t>& ends, int64_t times) {
  std::vector<int32_t> ids;
  for (int64_t n = 0; n < times; ++n) {
    for (size_t end = 0; end < ends.size(); ++end) {
      ids.resize(size_t(n * ends.back() + ends[end]), int32_t(end));
    }
  }
  return from_values(ids, {times, ends.back()});
}

std::vector<AttentionCase> cases() {
  std::vector<AttentionCase> all = attention_cases();
  const AttentionCase more[] = {
      {"one chunk", 1, 2, 2, 32, 32, 64},
      {"width 64", 1, 2, 1, 75, 75, 64},
      {"width 128", 1, 1, 1, 70, 75, 128},
      {"not causal, no key", 1, 2, 2, 9, 0, 8, {.causal = false}},
      {"not causal, query list", 1, 2, 1, 90, 90, 20, {.causal = false}},
      {"keep, list, long segments", 1, 2, 1, 150, 150, 8},
  };
  for (const AttentionCase& c : more) all.push_back(c);
  all[all.size() - 2].options.queries = some_queries({90});
  // Chunks of 32 tokens meet inside the segments.
  all.back().options.segments = segments_up_to({40, 110, 111, 150}, 1);
  all.push_back(all.back());
  all[all.size() - 2].options.queries = some_queries({150});
  all[all.size() - 2].options.keep = some_keep(1, 150);
  all.back().name = "long segments";
  return all;
}

void expect_matches_sums(const AttentionCase& c, std::span<const DType> dtypes) {
  SCOPED_TRACE(c.name);
  expect_matches(c, with(c.options), linear_equations(c), dtypes, c.Tk);
}

TEST(LinearAttention, MatchesItsSumsInEveryDType) {
  for (const AttentionCase& c : cases()) expect_matches_sums(c, kAttentionDTypes);
}

TEST(LinearAttention, MatchesItsSumsOnEveryInstructionSet) {
  const auto best = kernels::simd_level();
  for (const auto level : {kernels::SimdLevel::baseline, kernels::SimdLevel::avx2}) {
    if (level > best) continue;
    kernels::force_simd_level(level);
    for (const AttentionCase& c : cases()) {
      if (c.Tq < 600) expect_matches_sums(c, std::span(kAttentionDTypes).first(2));
    }
  }
  kernels::force_simd_level(best);
}

// fla-org/flash-linear-attention PR#875: a normaliser that was not differentiated.
TEST(LinearAttention, GradientsMatchFiniteDifferences) {
  for (const bool causal : {true, false}) {
    AttentionOptions options{.causal = causal};
    options.segments = from_values(std::vector<int32_t>{1, 1, 1, 2, 2, 2, 2}, {1, 7});
    options.keep = from_values(std::vector<uint8_t>{1, 0, 1, 1, 1, 1, 1}, {1, 7});
    options.queries = {ints({0, 2, 3, 4}), ints({0, 4})};
    EXPECT_TRUE(gradcheck_passes(
        [&](const auto& in) {
          return std::vector{
              linear_attention(in[0], in[1], in[2], options),
              linear_attention(in[0], in[1], in[2], {.causal = causal})};
        },
        {randn({1, 2, 5, 3}, 1, 0, kF64),
         randn({1, 1, 7, 3}, 1, 1, kF64),
         randn({1, 1, 7, 3}, 1, 2, kF64)}));
  }
  std::vector<Tensor> positive;
  for (uint64_t n = 0; n < 3; ++n) {
    Tensor x = rand({2, 2, 64, 8}, 2, n, kF64);
    for (int64_t i = 0; i < x.numel(); ++i) x.data<double>()[i] += 0.1;
    positive.push_back(x);
  }
  EXPECT_TRUE(gradcheck_passes(
      [](const auto& in) { return std::vector{linear_attention(in[0], in[1], in[2])}; },
      positive,
      {.tolerance = 1e-4}));
}

TEST(LinearAttention, GoldenCase) {
  std::vector<double> q, k, v, grad;
  for (int i = 0; i < 40; ++i) q.push_back(std::sin(1 + i));
  for (int i = 0; i < 20; ++i) k.push_back(std::cos(0.5 * (1 + i)));
  for (int i = 0; i < 20; ++i) v.push_back(i % 7 - 3);
  for (int i = 0; i < 40; ++i) grad.push_back(i % 4 + 1);
  const AttentionRun run = run_attention(
      with({}),
      {from_values(q, {1, 2, 5, 4}),
       from_values(k, {1, 1, 5, 4}),
       from_values(v, {1, 1, 5, 4}),
       from_values(grad, {1, 2, 5, 4}),
       Tensor()});
  const auto row = [](const Tensor& tensor, int64_t h, int64_t t) {
    return clone(tensor).alias({4}, {1}, (h * 5 + t) * 4);
  };
  const Tolerance digits{6e-7, 0};
  EXPECT_TRUE(near(row(run.out, 0, 4), {-0.817116, 0.182884, -0.599429, -0.267074}, digits));
  EXPECT_TRUE(near(row(run.out, 1, 4), {-0.785446, 0.214554, -0.703126, -0.318348}, digits));
  EXPECT_TRUE(near(row(run.out, 1, 2), {-1.894220, -0.894220, 0.105780, 0.077842}, digits));
  EXPECT_TRUE(near(row(run.grad_q, 1, 4), {-0.174004, -0.235380, -0.002969, 0.277904}, digits));
  EXPECT_TRUE(near(row(run.grad_k, 0, 1), {1.724950, 1.718898, 2.268954, 3.105954}, digits));
  EXPECT_TRUE(near(row(run.grad_v, 0, 0), {5.292004, 10.584009, 15.876013, 21.168017}, digits));
}

// fla-org/flash-linear-attention PR#594, #850: a normaliser summed over heads in place of time.
TEST(LinearAttention, EqualWeightsAverageWhatIsVisible) {
  const int64_t T = 100, H = 3, D = 4;
  std::vector<double> v, expected;
  for (int64_t h = 0; h < H; ++h) {
    for (int64_t i = 0; i < T * D; ++i) {
      v.push_back(std::pow(10, h) * double(i / D));
      expected.push_back(v.back() / 2);
    }
  }
  const Tensor values = from_values(v, {1, H, T, D});
  const Tensor zero = zeros({1, H, T, D}, kF64);
  const Tensor other = randn({1, H, T, D}, 3, 0, kF64);
  EXPECT_TRUE(near(linear_attention(zero, zero, values), expected, {1e-9, 1e-12}));
  EXPECT_TRUE(near(linear_attention(other, zero, values), expected, {1e-9, 1e-12}));
}

// lucidrains/performer-pytorch#40: a path without the normalisation.
TEST(LinearAttention, OnesStayOnesOnEveryPath) {
  const Tensor q = randn({2, 4, 70, 16}, 4, 0), k = randn({2, 2, 70, 16}, 4, 1);
  const Tensor ones = full(k.shape(), 1);
  const std::vector<double> expected(size_t(q.numel()), 1.0);
  const Tolerance tolerance{2e-6, 0};
  EXPECT_TRUE(near(linear_attention(q, k, ones), expected, tolerance));
  EXPECT_TRUE(near(linear_attention(q, k, ones, {.causal = false}), expected, tolerance));
  auto state = ops::linear_attention_state(2, 2, 16);
  EXPECT_TRUE(near(ops::linear_attention_step(state, q, k, ones), expected, tolerance));
}

// LeapLabTHU/FLatten-Transformer#15: sums that do not fit the storage type.
TEST(LinearAttention, StateOfLongSequencesDoesNotOverflow) {
  const Shape shape{1, 1, 4096, 64};
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const Tensor q = full(shape, 1, {dtype, {}});
    const Tensor k = full(shape, 8, {dtype, {}});
    const std::vector<double> expected(size_t(q.numel()), 8.0);
    EXPECT_TRUE(near(linear_attention(q, k, k), expected, {dtype == DType::f32 ? 2e-4 : 1e-30, 0}));
  }
}

Tensor rows_of(const Tensor& x, int64_t begin, int64_t end) {
  return x.alias(
      {x.size(0), x.size(1), end - begin, x.size(3)},
      x.strides(),
      x.offset() + begin * x.stride(2));
}

// fla-org/flash-linear-attention#88, #98, #1142: short and odd lengths.
TEST(LinearAttention, EveryLengthEqualsItsDecoding) {
  for (const int64_t T :
       {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 1334}) {
    const Tensor q = randn({2, 2, T, 8}, 5, 0), k = randn({2, 1, T, 8}, 5, 1);
    const Tensor v = randn({2, 1, T, 8}, 5, 2);
    const Tensor whole = linear_attention(q, k, v);
    auto state = ops::linear_attention_state(2, 1, 8);
    std::vector<float> decoded(size_t(q.numel()));
    const Tensor all = from_values(decoded, q.shape());
    for (int64_t t = 0; t < T; ++t) {
      const Tensor out = ops::linear_attention_step(
          state, rows_of(q, t, t + 1), rows_of(k, t, t + 1), rows_of(v, t, t + 1));
      copy_into(rows_of(all, t, t + 1), out);
    }
    EXPECT_TRUE(near(all, whole, {1e-5, 1e-5}, std::to_string(T) + " tokens"));
    auto taken_in = ops::linear_attention_state(2, 1, 8);
    ops::linear_attention_absorb(taken_in, k, v);
    EXPECT_TRUE(near(state.sums, taken_in.sums, {1e-4, 1e-5}));
  }
}

TEST(LinearAttention, StateCarriesOnWhereAPromptEnded) {
  for (const DType dtype : {DType::f64, DType::bf16}) {
    const TensorOptions options{dtype, {}};
    const Tensor q = randn({1, 4, 150, 20}, 6, 0, options);
    const Tensor k = randn({1, 2, 150, 20}, 6, 1, options);
    const Tensor v = randn({1, 2, 150, 20}, 6, 2, options);
    const Tensor whole = linear_attention(q, k, v);
    auto state = ops::linear_attention_state(1, 2, 20, options);
    const Tensor prompt =
        ops::linear_attention_step(state, rows_of(q, 0, 70), rows_of(k, 0, 70), rows_of(v, 0, 70));
    EXPECT_TRUE(bit_equal(prompt, rows_of(whole, 0, 70)));
    // These tokens' queries go to another expert; a later one still sees them.
    ops::linear_attention_absorb(state, rows_of(k, 70, 110), rows_of(v, 70, 110));
    const Tensor rest = ops::linear_attention_step(
        state, rows_of(q, 110, 150), rows_of(k, 110, 150), rows_of(v, 110, 150));
    const double tolerance = dtype == DType::f64 ? 1e-12 : 1e-2;
    EXPECT_TRUE(near(rest, rows_of(whole, 110, 150), {tolerance, tolerance}));
  }
}

// Few pairs are cut into spans, many are not.
TEST(LinearAttention, SpansOfFewPairsEqualOneSweep) {
  AttentionCase one{"", 1, 1, 1, 1300, 1500, 4};
  AttentionCase nine = one;
  nine.B = 9;
  const auto repeat = [](const Tensor& x, int64_t times) {
    return clone(x.alias(
        {times, x.size(1), x.size(2), x.size(3)},
        {0, x.stride(1), x.stride(2), x.stride(3)},
        x.offset()));
  };
  const auto first = [](const Tensor& x) {
    return x.alias({1, x.size(1), x.size(2), x.size(3)}, x.strides(), x.offset());
  };
  // Spans meet at 512 and 1024. Segments end there, cross one or both of the bounds, or end before.
  const std::vector<int64_t> ends[] = {{100, 512, 700, 1024, 1500}, {100, 700, 1500}, {1, 1500}};
  const ops::QueryList list = some_queries({1300});
  for (const int option : {0, 1, 2, 3, 4}) {
    AttentionOptions few, many;
    if (option < 3) {
      few.segments = segments_up_to(ends[option], 1);
      many.segments = segments_up_to(ends[option], 9);
    }
    if (option == 3) {
      few.queries = list;
      const auto count = int32_t(list.positions.numel());
      const auto positions = list.positions.to_vector<int32_t>();
      std::vector<int32_t> all, offsets{0};
      for (int32_t n = 1; n <= 9; ++n) {
        all.insert(all.end(), positions.begin(), positions.end());
        offsets.push_back(n * count);
      }
      many.queries = {ints(all), ints(offsets)};
    }
    const AttentionInputs in = inputs_of(one, DType::f64, DType::f64);
    const AttentionRun split = run_attention(with(few), in);
    const AttentionRun whole = run_attention(
        with(many),
        {repeat(in.q, 9), repeat(in.k, 9), repeat(in.v, 9), repeat(in.grad_out, 9), Tensor()});
    EXPECT_TRUE(near(split.out, first(whole.out), {1e-12, 1e-12})) << option;
    EXPECT_TRUE(near(split.grad_q, first(whole.grad_q), {1e-12, 1e-12})) << option;
    EXPECT_TRUE(near(split.grad_k, first(whole.grad_k), {1e-12, 1e-12})) << option;
    EXPECT_TRUE(near(split.grad_v, first(whole.grad_v), {1e-12, 1e-12})) << option;
  }
}

TEST(LinearAttention, ThreadCountsGiveTheSameBits) {
  std::vector<AttentionCase> all = cases();
  all.push_back({"spans", 1, 2, 1, 1300, 1300, 8});
  for (const AttentionCase& c : all) {
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

TEST(LinearAttention, OnlyTheGradientsThatAreWanted) {
  for (const bool causal : {true, false}) {
    const AttentionCase c{"", 1, 2, 1, 1100, 1100, 8};
    const AttentionInputs in = inputs_of(c, DType::f32, DType::f32);
    const AttentionRun all = run_attention(with({.causal = causal}), in);
    for (int wanted = 0; wanted < 3; ++wanted) {
      Tensor leaves[] = {in.q.detach(), in.k.detach(), in.v.detach()};
      autograd::set_requires_grad(leaves[wanted]);
      const Tensor out = linear_attention(leaves[0], leaves[1], leaves[2], {.causal = causal});
      autograd::backward(out, in.grad_out);
      const Tensor expected[] = {all.grad_q, all.grad_k, all.grad_v};
      EXPECT_TRUE(bit_equal(autograd::grad(leaves[wanted]), expected[wanted]));
    }
  }
}

TEST(LinearAttention, CausalOutputIgnoresTheFuture) {
  const AttentionCase c{"", 1, 2, 1, 150, 150, 16};
  const AttentionInputs in = inputs_of(c, DType::f32, DType::f32);
  const Tensor before = linear_attention(in.q, in.k, in.v);
  const Tensor k = clone(in.k), v = clone(in.v);
  for (const Tensor& changed : {k, v}) fill(rows_of(changed, 77, 150), 1e3);
  const Tensor after = linear_attention(in.q, k, v);
  EXPECT_TRUE(bit_equal(rows_of(after, 0, 77), rows_of(before, 0, 77)));
  EXPECT_FALSE(bit_equal(after, before));
}

TEST(LinearAttention, MaskedTokensMayHoldAnything) {
  AttentionCase c{"", 1, 2, 2, 90, 90, 16};
  c.options.keep = some_keep(1, 90);
  const AttentionInputs in = inputs_of(c, DType::f32, DType::f32);
  AttentionInputs dirty = in;
  for (Tensor* x : {&dirty.q, &dirty.k, &dirty.v, &dirty.grad_out}) {
    *x = clone(*x);
    for (int64_t t = 0; t < 90; ++t) {
      if (c.options.keep.data<uint8_t>()[t] == 0) fill(rows_of(*x, t, t + 1), NAN);
    }
  }
  expect_same_bits(
      run_attention(with(c.options), dirty), run_attention(with(c.options), in), "NaN");
  // A NaN that is not masked must show.
  const Tensor seen = linear_attention(dirty.q, dirty.k, dirty.v);
  EXPECT_TRUE(std::isnan(clone(seen).data<float>()[89 * 16]));
}

// phi(-200) is 0 in f32. Queries near -60 have tiny features whose scale cancels.
TEST(LinearAttention, VanishingFeaturesGiveZerosOrTheTruth) {
  const AttentionCase c{"", 1, 1, 1, 40, 40, 16};
  AttentionInputs in = inputs_of(c, DType::f32, DType::f32);
  in.q = clone(in.q);
  fill(rows_of(in.q, 10, 20), -200);
  for (int64_t i = 20 * 16; i < 30 * 16; ++i) in.q.data<float>()[i] -= 80;
  const AttentionRun run = run_attention(with({}), in);
  const std::vector<double> nothing(10 * 16, 0.0);
  EXPECT_TRUE(near(rows_of(run.out, 10, 20), nothing, {1e-30, 0}));
  EXPECT_TRUE(near(rows_of(run.grad_q, 10, 20), nothing, {1e-30, 0}));
  const Tensor q = to_dtype(in.q, DType::f64);
  fill(rows_of(q, 10, 20), -INFINITY);
  const AttentionResult truth = reference_linear_attention(
      q, to_dtype(in.k, DType::f64), to_dtype(in.v, DType::f64), c.mask(), values_of(in.grad_out));
  EXPECT_TRUE(near(run.out, truth.out, {1e-4, 1e-4}));
  EXPECT_TRUE(near(run.grad_q, truth.grad_q, {1e-4, 1e-4}));
  EXPECT_TRUE(near(run.grad_k, truth.grad_k, {1e-4, 1e-4}));
  for (const double low : {-200.0, -84.0, -75.0}) {
    const Tensor x = full({1, 1, 5, 4}, low);
    const AttentionRun none = run_attention(with({}), {x, x, x, full(x.shape(), 1), Tensor()});
    for (const Tensor& zero : {none.out, none.grad_q, none.grad_k, none.grad_v}) {
      EXPECT_TRUE(near(zero, std::vector<double>(20, 0.0), {1e-30, 0})) << low;
    }
  }
}

// pytorch/pytorch#160064: one masked head spoils the others.
TEST(LinearAttention, ClosedGateSilencesItsHeadOnly) {
  const AttentionCase three{"", 1, 3, 3, 5, 5, 8};
  const AttentionInputs in = inputs_of(three, DType::f32, DType::f32);
  const Tensor gate = autograd::set_requires_grad(from_values(std::vector<float>{1, 1, 0}, {3}));
  const AttentionRun gated = run_attention(with({.head_gate = gate}), in);
  const auto heads = [](const Tensor& x, int64_t begin, int64_t end) {
    return x.alias(
        {x.size(0), end - begin, x.size(2), x.size(3)},
        x.strides(),
        x.offset() + begin * x.stride(1));
  };
  const AttentionRun two = run_attention(
      with({}),
      {heads(in.q, 0, 2), heads(in.k, 0, 2), heads(in.v, 0, 2), heads(in.grad_out, 0, 2), {}});
  expect_same_bits(
      {heads(gated.out, 0, 2),
       {},
       heads(gated.grad_q, 0, 2),
       heads(gated.grad_k, 0, 2),
       heads(gated.grad_v, 0, 2)},
      two,
      "open heads");
  for (const Tensor& x : {gated.out, gated.grad_q, gated.grad_k, gated.grad_v}) {
    EXPECT_TRUE(near(heads(x, 2, 3), std::vector<double>(40, 0.0), {1e-30, 0}));
  }
  for (const float g : autograd::grad(gate).to_vector<float>()) EXPECT_TRUE(std::isfinite(g));
  EXPECT_EQ(gated.out.stride(2), 24);
}

TEST(LinearAttention, GatesAreDifferentiable) {
  for (const Shape& shape : {Shape{2}, Shape{2, 2}}) {
    EXPECT_TRUE(gradcheck_passes(
        [](const auto& in) {
          return std::vector{linear_attention(in[0], in[1], in[2], {.head_gate = in[3]})};
        },
        {randn({2, 2, 3, 2}, 7, 0, kF64),
         randn({2, 1, 3, 2}, 7, 1, kF64),
         randn({2, 1, 3, 2}, 7, 2, kF64),
         randn(shape, 7, 3, kF64)}));
  }
}

TEST(LinearAttention, RefusesWhatDoesNotFit) {
  const Tensor q = randn({2, 4, 6, 8}, 1), k = randn({2, 2, 6, 8}, 1);
  SLUICE_EXPECT_THROW(
      linear_attention(randn({4, 6, 8}, 1), k, k),
      ShapeError,
      "linear_attention: q must have rank 4");
  SLUICE_EXPECT_THROW(linear_attention(q, k, q), ShapeError, "v must have shape (2, 2, 6, 8)");
  SLUICE_EXPECT_THROW(linear_attention(q, to_dtype(k, DType::f64), k), DTypeError, "k must be f32");
  SLUICE_EXPECT_THROW(
      linear_attention(q, k, k, {.query_lengths = ints({6, 7})}),
      ArgumentError,
      "query_lengths must be in 0..6");
  SLUICE_EXPECT_THROW(
      linear_attention(q, k, k, {.head_gate = randn({3}, 1)}),
      ShapeError,
      "head_gate must have shape (4)");
  SLUICE_EXPECT_THROW(
      linear_attention(q, k, k, {.head_gate = randn({4}, 1, 0, kF64)}),
      DTypeError,
      "head_gate must be f32");
  const Tensor elsewhere = empty({2, 2, 6, 8}, {DType::f32, {DeviceType::simt}});
  SLUICE_EXPECT_THROW(linear_attention(q, elsewhere, k), DeviceError, "k must be on cpu");

  auto state = ops::linear_attention_state(2, 2, 8);
  SLUICE_EXPECT_THROW(
      ops::linear_attention_step(state, rows_of(q, 0, 5), k, k), ShapeError, "as many tokens as k");
  SLUICE_EXPECT_THROW(
      ops::linear_attention_absorb(state, randn({2, 6, 8}, 1), k),
      ShapeError,
      "k must have rank 4");
  auto narrow = ops::linear_attention_state(2, 2, 7);
  SLUICE_EXPECT_THROW(
      ops::linear_attention_step(narrow, q, k, k),
      ShapeError,
      "state must have shape (2, 2, 8, 9)");
  auto wide = ops::linear_attention_state(2, 2, 8, kF64);
  SLUICE_EXPECT_THROW(ops::linear_attention_step(wide, q, k, k), DTypeError, "state must be f32");
  ops::LinearAttentionState none;
  SLUICE_EXPECT_THROW(ops::linear_attention_step(none, q, k, k), ArgumentError, "state must be");
  const Tensor leaf = autograd::set_requires_grad(randn({2, 4, 6, 8}, 1));
  SLUICE_EXPECT_THROW(ops::linear_attention_step(state, leaf, k, k), GradError, "in place");
}

}  // namespace
}  // namespace sluice
