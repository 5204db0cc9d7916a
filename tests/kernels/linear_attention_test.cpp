// What the ops of single experts do not use: compact queries and gradients that add up. The results
// are those of the op, bit for bit where the arithmetic is the same.
#include "kernels/linear_attention.h"

#include <gtest/gtest.h>

#include "engine/context.h"
#include "ops/attention_plan.h"
#include "ops/linear_attention.h"
#include "tests/ops/attention_cases.h"

namespace sluice {
namespace {

using namespace testing;

Tensor scratch_of(size_t bytes) { return empty({int64_t(bytes)}, {DType::u8, {}}); }

// Every third query of two sequences, as one slice of a longer list.
struct Compact : ::testing::Test {
  AttentionCase c{"", 2, 4, 2, 100, 100, 16};
  AttentionInputs in = inputs_of(c, DType::f32, DType::f32);
  std::vector<int32_t> positions{-1, -1}, offsets{2};

  void SetUp() override {
    for (int32_t s = 0; s < 2; ++s) {
      for (int32_t t = s; t < 100; t += 3) positions.push_back(t);
      offsets.push_back(int32_t(positions.size()));
    }
    const std::vector<int32_t> own(positions.begin() + 2, positions.end());
    c.options.queries = {ints(own), ints({0, offsets[1] - 2, offsets[2] - 2})};
  }

  // The listed rows of a (B, H, T, D) tensor as (1, H, N, D).
  Tensor gathered(const Tensor& x) const {
    const auto count = int64_t(positions.size()) - 2;
    const Tensor rows = zeros({1, c.H, count, c.D}, {x.dtype(), {}});
    for (int64_t n = 0; n < count; ++n) {
      const int64_t b = n + 2 >= offsets[1];
      const int64_t from = x.offset() + b * x.stride(0) + positions[size_t(n) + 2] * x.stride(2);
      copy_into(
          rows.alias({c.H, c.D}, {count * c.D, 1}, n * c.D),
          x.alias({c.H, c.D}, {x.stride(1), 1}, from));
    }
    return rows;
  }
};

TEST_F(Compact, QueriesGiveTheRowsOfTheOp) {
  const AttentionRun run = run_attention(
      [&](const Tensor& q, const Tensor& k, const Tensor& v) {
        return ops::AttentionOutput{ops::linear_attention(q, k, v, c.options), Tensor()};
      },
      in);
  const auto plan = ops::plan_attention("test", in.q, in.k, in.v, {});
  kernels::AttentionProblem problem = plan->problem;
  problem.slots = {positions.data(), offsets.data(), true};
  const Tensor q = gathered(in.q), grad_out = gathered(in.grad_out);
  const Tensor out = empty_like(q), grad_q = empty_like(q);
  const Tensor normalizer = empty({1, c.H, q.size(2)});
  kernels::LinearAttentionForward forward{problem};
  forward.q = ops::head_rows(q);
  forward.k = ops::head_rows(in.k);
  forward.v = ops::head_rows(in.v);
  forward.out = ops::head_rows(out);
  forward.normalizer = ops::head_rows(normalizer);
  const int threads = cpu_context().threads.size();
  const Tensor first =
      scratch_of(kernels::linear_attention_forward_scratch_bytes(forward, threads));
  forward.scratch = first.raw();
  kernels::linear_attention_forward(cpu_context(), forward);
  EXPECT_TRUE(bit_equal(out, gathered(run.out)));

  const Tensor grad_k = full(in.k.shape(), 1), grad_v = full(in.v.shape(), 2);
  kernels::LinearAttentionBackward backward{problem};
  backward.q = forward.q;
  backward.k = forward.k;
  backward.v = forward.v;
  backward.out = forward.out;
  backward.normalizer = forward.normalizer;
  backward.grad_out = ops::head_rows(grad_out);
  backward.grad_q = ops::head_rows(grad_q);
  backward.grad_k = ops::head_rows(grad_k);
  backward.grad_v = ops::head_rows(grad_v);
  backward.accumulate = true;
  const Tensor second =
      scratch_of(kernels::linear_attention_backward_scratch_bytes(backward, threads));
  backward.scratch = second.raw();
  kernels::linear_attention_backward(cpu_context(), backward);
  EXPECT_TRUE(bit_equal(grad_q, gathered(run.grad_q)));
  const Tensor expected_k = full(in.k.shape(), 1), expected_v = full(in.v.shape(), 2);
  accumulate_into(expected_k, run.grad_k);
  accumulate_into(expected_v, run.grad_v);
  EXPECT_TRUE(bit_equal(grad_k, expected_k));
  EXPECT_TRUE(bit_equal(grad_v, expected_v));
}

// Experts that share keys add their gradients in f32 before the one rounding to bf16.
TEST(LinearAttentionKernel, KeyGradientsOfBf16AddUpInF32) {
  const AttentionCase c{"", 1, 2, 1, 70, 70, 16};
  const AttentionInputs in = inputs_of(c, DType::bf16, DType::bf16);
  const AttentionRun run = run_attention(
      [](const Tensor& q, const Tensor& k, const Tensor& v) {
        return ops::AttentionOutput{ops::linear_attention(q, k, v), Tensor()};
      },
      in);
  const auto plan = ops::plan_attention("test", in.q, in.k, in.v, {});
  const Tensor normalizer = empty({1, 2, 70});
  const Tensor out = empty({1, 2, 70, 16}, {DType::bf16, {}});
  kernels::LinearAttentionForward forward{plan->problem};
  forward.q = ops::head_rows(in.q);
  forward.k = ops::head_rows(in.k);
  forward.v = ops::head_rows(in.v);
  forward.out = ops::head_rows(out);
  forward.normalizer = ops::head_rows(normalizer);
  const int threads = cpu_context().threads.size();
  const Tensor first =
      scratch_of(kernels::linear_attention_forward_scratch_bytes(forward, threads));
  forward.scratch = first.raw();
  kernels::linear_attention_forward(cpu_context(), forward);

  const Tensor grad_k = empty(in.k.shape()), grad_v = empty(in.v.shape());
  kernels::LinearAttentionBackward backward{plan->problem};
  backward.q = forward.q;
  backward.k = forward.k;
  backward.v = forward.v;
  backward.out = forward.out;
  backward.normalizer = forward.normalizer;
  backward.grad_out = ops::head_rows(in.grad_out);
  backward.grad_k = ops::head_rows(grad_k);
  backward.grad_v = ops::head_rows(grad_v);
  const Tensor second =
      scratch_of(kernels::linear_attention_backward_scratch_bytes(backward, threads));
  backward.scratch = second.raw();
  for (const bool accumulate : {false, true}) {
    backward.accumulate = accumulate;
    kernels::linear_attention_backward(cpu_context(), backward);
  }
  const auto halves = [](const Tensor& sum) {
    std::vector<float> values = sum.to_vector<float>();
    for (float& value : values) value /= 2;
    return to_dtype(from_values(values, sum.shape()), DType::bf16);
  };
  EXPECT_TRUE(bit_equal(halves(grad_k), run.grad_k));
  EXPECT_TRUE(bit_equal(halves(grad_v), run.grad_v));
}

}  // namespace
}  // namespace sluice
