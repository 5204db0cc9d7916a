// Cases that broke other engines: golden values, closed forms, masks that hide everything, packed
// sequences of odd lengths. Memory is filled with NaN before use, so a row left out shows.
#include <bit>

#include <gtest/gtest.h>

#include "engine/context.h"
#include "kernels/simd/dispatch.h"
#include "ops/attention.h"
#include "ops/sliding_window_attention.h"
#include "tests/ops/attention_cases.h"

namespace sluice {
namespace {

using namespace testing;
using ops::attention;
using ops::attention_with_lse;
using ops::AttentionOptions;

AttentionFunction with(const AttentionOptions& options) {
  return [options](const Tensor& q, const Tensor& k, const Tensor& v) {
    return ops::AttentionOutput{attention(q, k, v, options), {}};
  };
}

std::vector<double> row(const Tensor& t, int64_t b, int64_t h, int64_t i) {
  const auto values = values_of(t);
  const auto at = values.begin() + ((b * t.size(1) + h) * t.size(2) + i) * t.size(3);
  return {at, at + t.size(3)};
}

void expect_row(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t d = 0; d < actual.size(); ++d) EXPECT_NEAR(actual[d], expected[d], 1e-6);
}

void expect_all(const Tensor& t, double value, const char* what) {
  for (const double x : values_of(t)) ASSERT_EQ(x, value) << what;
}

Tensor filled(const Shape& shape, DType dtype, const std::function<double(int64_t)>& value) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.numel(); ++i) values.push_back(value(i));
  return to_dtype(from_values(values, shape), dtype);
}

TEST(AttentionField, GoldenValues) {
  const DType f64 = DType::f64;
  const AttentionInputs in{
      filled({1, 2, 5, 4}, f64, [](int64_t i) { return std::sin(1.0 + double(i)); }),
      filled({1, 1, 5, 4}, f64, [](int64_t i) { return std::cos(0.5 * double(1 + i)); }),
      filled({1, 1, 5, 4}, f64, [](int64_t i) { return double(i % 7 - 3); }),
      filled({1, 2, 5, 4}, f64, [](int64_t i) { return double(i % 4 + 1); }),
      {}};
  const AttentionRun run = run_attention(with({}), in);
  expect_row(row(run.out, 0, 0, 4), {-0.654970, 0.345030, 0.734492, -0.254951});
  expect_row(row(run.out, 0, 1, 4), {-0.966496, 0.033504, -0.266832, -0.060249});
  expect_row(row(run.out, 0, 1, 2), {-0.396487, 0.603513, 1.603513, -1.455034});
  expect_row(row(run.grad_q, 0, 1, 4), {-1.783044, -1.440281, -0.744887, 0.132881});
  expect_row(row(run.grad_k, 0, 0, 1), {-0.872115, -0.035017, 0.834275, 0.936539});
  expect_row(row(run.grad_v, 0, 0, 0), {4.467945, 8.935890, 13.403835, 17.871780});
}

TEST(AttentionField, EqualScoresAverageTheVisibleValues) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const Tensor zero = zeros({1, 1, 200, 8}, {dtype, {}});
    const Tensor any = to_dtype(randn({1, 1, 200, 8}, 3), dtype);
    const Tensor v = filled({1, 1, 200, 8}, dtype, [](int64_t i) { return double(i / 8); });
    const auto half = filled({1, 1, 200, 8}, dtype, [](int64_t i) { return double(i / 8) / 2; });
    EXPECT_TRUE(near(attention(zero, any, v), half, {1e-5, 1e-6}));
    EXPECT_TRUE(near(attention(any, zero, v), half, {1e-5, 1e-6}));
  }
}

// A1: rows and keys behind 4 are masked.
TEST(AttentionField, FullyMaskedRowsAreZeroAndFinite) {
  AttentionCase c{"", 1, 1, 1, 8, 8, 8};
  c.options.causal = false;
  c.options.keep = from_values(std::vector<uint8_t>{1, 1, 1, 1, 0, 0, 0, 0}, {1, 8});
  AttentionInputs in = inputs_of(c, DType::f32, DType::f32);
  fill(in.grad_out, 1);
  fill(in.grad_lse, 0);
  const AttentionRun run = run_attention(
      [&](const auto& q, const auto& k, const auto& v) {
        return attention_with_lse(q, k, v, c.options);
      },
      in);
  for (int64_t t = 4; t < 8; ++t) {
    for (const Tensor& result : {run.out, run.grad_q, run.grad_k, run.grad_v}) {
      EXPECT_EQ(row(result, 0, 0, t), std::vector<double>(8, 0.0));
    }
    EXPECT_EQ(values_of(run.lse)[size_t(t)], -INFINITY);
  }
  for (const Tensor& result : {run.out, run.grad_q, run.grad_k, run.grad_v}) {
    for (const double x : values_of(result)) EXPECT_TRUE(std::isfinite(x));
  }
}

// The rows of a masked token may hold anything, even NaN, those of its query included.
TEST(AttentionField, MaskedTokensMayBeNaN) {
  AttentionCase c{"", 1, 2, 2, 100, 100, 8};
  c.options.keep = some_keep(1, 100);
  c.options.key_lengths = ints({90});
  c.options.query_lengths = ints({90});
  const AttentionInputs in = inputs_of(c, DType::f32, DType::f32);
  const AttentionRun clean = run_attention(with(c.options), in);
  const auto keep = c.options.keep.to_vector<uint8_t>();
  for (const Tensor& changed : {in.q, in.k, in.v, in.grad_out}) {
    for (int64_t t = 0; t < 100; ++t) {
      if (t < 90 && keep[size_t(t)] != 0) continue;
      fill(
          changed.alias({2, 8}, {changed.stride(1), 1}, changed.offset() + t * changed.stride(2)),
          NAN);
    }
  }
  expect_same_bits(run_attention(with(c.options), in), clean, "NaN behind the mask");
}

// 2^x adds to the exponent bits, which turned a NaN with a full payload into +-FLT_MAX.
TEST(AttentionField, NaNOfAnyPayloadReachesTheQueriesThatSeeIt) {
  const auto chosen = kernels::simd_level();
  for (int level = 0; level <= int(kernels::best_simd_level()); ++level) {
    kernels::force_simd_level(kernels::SimdLevel(level));
    for (const uint32_t bits : {0xffffffffu, 0x7fffffffu, 0x7fc00000u}) {
      const Tensor q = randn({1, 1, 100, 8}, 1), k = randn({1, 1, 100, 8}, 2);
      const Tensor v = randn({1, 1, 100, 8}, 3);
      for (int64_t d = 0; d < 8; ++d) k.data<float>()[10 * 8 + d] = std::bit_cast<float>(bits);
      const auto out = values_of(attention(q, k, v));
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(std::isnan(out[i]), i >= 10 * 8) << "level " << level << " row " << i / 8;
      }
    }
  }
  kernels::force_simd_level(chosen);
}

// A2: only the last query of each sequence sees its one key.
TEST(AttentionField, OneKeyGivesExactGradients) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    AttentionCase c{"", 1, 1, 1, 256, 3, 32};
    c.options.query_offsets = ints({0, 76, 110, 256});
    c.options.key_offsets = ints({0, 1, 2, 3});
    AttentionInputs in = inputs_of(c, dtype, dtype);
    for (Tensor* t : {&in.q, &in.k, &in.v}) {
      *t = filled(t->shape(), dtype, [x = values_of(*t)](int64_t i) { return 3 * x[size_t(i)]; });
    }
    fill(in.grad_out, 1);
    const AttentionRun run = run_attention(with(c.options), in);
    expect_all(run.grad_q, 0, "grad_q");
    expect_all(run.grad_k, 0, "grad_k");
    expect_all(run.grad_v, 1, "grad_v");
    for (int64_t i = 0; i < 256; ++i) {
      const int64_t key = i == 75 ? 0 : i == 109 ? 1 : i == 255 ? 2 : -1;
      EXPECT_EQ(
          row(run.out, 0, 0, i), key < 0 ? std::vector<double>(32, 0.0) : row(in.v, 0, 0, key));
    }
  }
}

// A6: a gate of 0 must not turn anything into NaN.
TEST(AttentionField, HeadGateOffLeavesTheOtherHeads) {
  const AttentionCase three{"", 1, 3, 3, 5, 5, 8};
  const AttentionInputs in = inputs_of(three, DType::f32, DType::f32);
  const Tensor gate = autograd::set_requires_grad(from_values(std::vector<float>{1, 1, 0}, {3}));
  const AttentionRun gated = run_attention(with({.head_gate = gate}), in);
  const auto heads = [](const Tensor& t, int64_t begin, int64_t count) {
    return t.alias({1, count, t.size(2), t.size(3)}, t.strides(), t.offset() + begin * t.stride(1));
  };
  const AttentionRun two = run_attention(
      with({}),
      {heads(in.q, 0, 2), heads(in.k, 0, 2), heads(in.v, 0, 2), heads(in.grad_out, 0, 2), {}});
  const Tensor AttentionRun::*const results[] = {
      &AttentionRun::out, &AttentionRun::grad_q, &AttentionRun::grad_k, &AttentionRun::grad_v};
  for (const auto result : results) {
    EXPECT_TRUE(bit_equal(heads(gated.*result, 0, 2), two.*result));
    expect_all(heads(gated.*result, 2, 1), 0, "head 2");
  }
  const auto gate_grad = values_of(autograd::grad(gate));
  const auto raw = values_of(attention(in.q, in.k, in.v));
  const auto grad_out = values_of(in.grad_out);
  for (size_t h = 0; h < 3; ++h) {
    double expected = 0;
    for (size_t i = h * 40; i < (h + 1) * 40; ++i) expected += raw[i] * grad_out[i];
    EXPECT_NEAR(gate_grad[h], expected, 1e-4);
  }
  EXPECT_TRUE(gradcheck_passes(
      [](const auto& x) { return std::vector{attention(x[0], x[0], x[0], {.head_gate = x[1]})}; },
      {randn({2, 2, 4, 3}, 5, 0, {DType::f64, {}}),
       from_values(std::vector<double>{0.5, 0, -1, 2}, {2, 2})}));
  SLUICE_EXPECT_THROW(
      attention(in.q, in.k, in.v, {.head_gate = empty({2})}),
      ShapeError,
      "head_gate must have shape (3)");
}

// A8: lengths around a block, in bf16, with a tiny gradient.
TEST(AttentionField, LengthsAroundATileAreFinite) {
  for (const int64_t T : {1, 127, 128, 129, 137, 1023, 1025}) {
    AttentionCase c{"T = " + std::to_string(T), 1, 1, 1, T, T, 64};
    if (T < 1000) {
      expect_matches_reference(c, with({}));
      continue;
    }
    AttentionInputs in = inputs_of(c, DType::bf16, DType::bf16);
    fill(in.grad_out, 0.01 / double(T * 64));
    const AttentionRun run = run_attention(with({}), in);
    for (const Tensor& t : {run.out, run.grad_q, run.grad_k, run.grad_v}) {
      for (const double x : values_of(t)) ASSERT_TRUE(std::isfinite(x));
    }
  }
}

// A10: the causal mask is aligned at the bottom right.
TEST(AttentionField, LastQueryIsAlignedWithLastKey) {
  const auto run = [](int64_t Tq, int64_t Tk) {
    const Tensor v = filled({1, 1, Tk, 1}, DType::f64, [](int64_t j) { return double(j + 1); });
    const Tensor q = zeros({1, 1, Tq, 1}, {DType::f64, {}});
    return values_of(attention(q, zeros_like(v), v));
  };
  expect_row(run(2, 5), {2.5, 3.0});
  expect_row(run(5, 2), {0, 0, 0, 1.0, 1.5});
}

// C1: empty sequences beside sequences of one query.
TEST(AttentionField, EmptySequencesBetweenOthers) {
  AttentionCase c{"C1", 1, 9, 3, 2, 8, 64};
  c.options.scale = 1;
  c.options.query_offsets = ints({0, 0, 1, 1, 2});
  c.options.key_offsets = ints({0, 0, 3, 3, 8});
  expect_matches_reference(c, with(c.options));
}

// C3: sequences without queries or without keys beside a long one.
TEST(AttentionField, LongSequenceBesideEmptyOnes) {
  AttentionCase c{"C3", 1, 4, 4, 1023, 2045, 128};
  c.options.query_offsets = ints({0, 0, 0, 1023});
  c.options.key_offsets = ints({0, 0, 1, 2045});
  const AttentionInputs in = inputs_of(c, DType::bf16, DType::bf16);
  const AttentionRun run = run_attention(with(c.options), in);
  for (int64_t h = 0; h < 4; ++h) {
    EXPECT_EQ(row(run.grad_k, 0, h, 0), std::vector<double>(128, 0.0));
    EXPECT_EQ(row(run.grad_v, 0, h, 0), std::vector<double>(128, 0.0));
  }
  for (const Tensor& t : {run.out, run.grad_q, run.grad_k, run.grad_v}) {
    for (const double x : values_of(t)) ASSERT_TRUE(std::isfinite(x));
  }
}

// C5: rows past the last offset are zeros, whatever the allocator left there.
TEST(AttentionField, RowsPastTheLastOffsetAreZero) {
  AttentionCase c{"", 1, 2, 1, 1024, 1024, 8};
  c.options.query_offsets = ints({0, 400, 1000});
  c.options.key_offsets = ints({0, 400, 1000});
  const AttentionRun run = run_attention(with(c.options), inputs_of(c, DType::f32, DType::f32));
  for (const Tensor& t : {run.out, run.grad_q, run.grad_k, run.grad_v}) {
    for (int64_t h = 0; h < t.size(1); ++h) {
      for (int64_t i = 1000; i < 1024; ++i) {
        ASSERT_EQ(row(t, 0, h, i), std::vector<double>(8, 0.0)) << "row " << i;
      }
    }
  }
}

// C7: a head size that is no power of two.
TEST(AttentionField, HeadSize192) {
  AttentionCase c{"C7", 1, 16, 16, 3, 7, 192};
  c.options.scale = 0.1147213876;
  expect_matches_reference(c, with(c.options));
}

// C8: packed sequences equal the same sequences run one by one.
TEST(AttentionField, PackedEqualsOneByOne) {
  for (const int64_t D : {64, 128}) {
    AttentionCase c{"", 1, 2, 1, 333, 333, D};
    const int64_t begin[] = {0, 128, 256, 333};
    c.options.query_offsets = c.options.key_offsets = ints({0, 128, 256, 333});
    const AttentionInputs in = inputs_of(c, DType::f32, DType::f32);
    const AttentionRun packed = run_attention(with(c.options), in);
    for (int s = 0; s < 3; ++s) {
      const auto part = [&](const Tensor& t) {
        return t.alias(
            {1, t.size(1), begin[s + 1] - begin[s], D},
            t.strides(),
            t.offset() + begin[s] * t.stride(2));
      };
      const AttentionRun alone =
          run_attention(with({}), {part(in.q), part(in.k), part(in.v), part(in.grad_out), {}});
      expect_same_bits(
          alone,
          {part(packed.out), {}, part(packed.grad_q), part(packed.grad_k), part(packed.grad_v)},
          "sequence " + std::to_string(s));
    }
  }
}

// G3: "bf16 is wrong": large values, the 2x-naive rule, both errors printed by the comparison.
TEST(AttentionField, LargeValuesInBf16) {
  AttentionCase c{"G3", 1, 2, 2, 256, 256, 64};
  AttentionInputs in = inputs_of(c, DType::bf16, DType::bf16);
  in.v = filled(
      in.v.shape(), DType::bf16, [x = values_of(in.v)](int64_t i) { return 10 * x[size_t(i)]; });
  const AttentionRun run = run_attention(with({}), in);
  const auto grad_out = values_of(in.grad_out);
  const auto truth = reference_attention(in.q, in.k, in.v, c.mask(), c.scale(), grad_out);
  const auto naive =
      reference_attention(in.q, in.k, in.v, c.mask(), c.scale(), grad_out, {}, to_bf16);
  const auto compare = [&](const Tensor& actual, const auto& expected, const auto& rounded) {
    EXPECT_TRUE(
        bf16_rows(actual, expected, to_dtype(from_values(rounded, actual.shape()), DType::bf16)));
  };
  compare(run.out, truth.out, naive.out);
  compare(run.grad_q, truth.grad_q, naive.grad_q);
  compare(run.grad_k, truth.grad_k, naive.grad_k);
  compare(run.grad_v, truth.grad_v, naive.grad_v);
}

// G8 and the use of lse: parts over disjoint keys merge to the whole.
TEST(AttentionField, PartsMergeByTheirLse) {
  const AttentionCase c{"", 1, 2, 2, 40, 300, 16};
  const AttentionInputs in = inputs_of(c, DType::f32, DType::f32);
  const AttentionOptions all{.causal = false};
  const auto whole = attention_with_lse(in.q, in.k, in.v, all);
  std::vector<double> out(size_t(whole.out.numel()), 0), total(size_t(whole.lse.numel()), 0);
  const int64_t begin[] = {0, 7, 200, 300};
  for (int part = 0; part < 3; ++part) {
    const auto keys = [&](const Tensor& t) {
      return t.alias(
          {1, 2, begin[part + 1] - begin[part], 16},
          t.strides(),
          t.offset() + begin[part] * t.stride(2));
    };
    const auto piece = attention_with_lse(in.q, keys(in.k), keys(in.v), all);
    const auto rows = values_of(piece.out);
    const auto lse = values_of(piece.lse);
    for (size_t i = 0; i < lse.size(); ++i) {
      total[i] += std::exp(lse[i]);
      for (size_t d = 0; d < 16; ++d) out[i * 16 + d] += std::exp(lse[i]) * rows[i * 16 + d];
    }
  }
  for (size_t i = 0; i < out.size(); ++i) out[i] /= total[i / 16];
  for (double& x : total) x = std::log(x);
  EXPECT_TRUE(near(whole.out, out, {1e-5, 1e-5}));
  EXPECT_TRUE(near(whole.lse, total, {1e-5, 1e-5}));
}

}  // namespace
}  // namespace sluice
