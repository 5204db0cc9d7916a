// What the launchers offer beyond the ops: compact query rows, sums over several calls.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include "ops/attention_plan.h"
#include "tests/ops/attention_cases.h"

namespace sluice {
namespace {

using namespace testing;
using ops::head_rows;

Tensor scratch_of(size_t bytes) { return empty({int64_t(bytes)}, {DType::u8, {}}); }

void forward(kernels::AttentionForward args) {
  const Tensor scratch =
      scratch_of(kernels::attention_forward_scratch_bytes(args, cpu_context().threads.size()));
  args.scratch = scratch.raw();
  kernels::attention_forward(cpu_context(), args);
}

void backward(kernels::AttentionBackward args) {
  const Tensor scratch =
      scratch_of(kernels::attention_backward_scratch_bytes(args, cpu_context().threads.size()));
  args.scratch = scratch.raw();
  kernels::attention_backward(cpu_context(), args);
}

// The rows of `t` (B, H, T, D) or (B, H, T) that a query list names, as (1, H, N, ..).
Tensor gather(const Tensor& t, const ops::QueryList& list) {
  const auto positions = list.positions.to_vector<int32_t>();
  const auto offsets = list.offsets.to_vector<int32_t>();
  const int64_t begin = offsets[0];
  const int64_t count = offsets.back() - begin;
  const int64_t width = t.rank() == 4 ? t.size(3) : 1;
  std::vector<double> values;
  const auto all = values_of(t);
  for (int64_t h = 0; h < t.size(1); ++h) {
    for (int64_t b = 0; b < t.size(0); ++b) {
      for (int64_t n = offsets[size_t(b)]; n < offsets[size_t(b) + 1]; ++n) {
        const int64_t row = (b * t.size(1) + h) * t.size(2) + positions[size_t(n)];
        const auto at = all.begin() + row * width;
        values.insert(values.end(), at, at + width);
      }
    }
  }
  const Shape shape =
      t.rank() == 4 ? Shape{1, t.size(1), count, width} : Shape{1, t.size(1), count};
  return to_dtype(from_values(values, shape), t.dtype());
}

TEST(AttentionKernel, CompactRowsEqualTokenRows) {
  const AttentionCase c{"", 2, 4, 2, 203, 203, 16};
  const AttentionInputs in = inputs_of(c, DType::f32, DType::f32);
  ops::AttentionOptions options;
  // Slots 2.. only: compact rows start at the first slot of the first sequence.
  options.queries = {ints({9, 9, 0, 1, 70, 71, 150, 202, 3, 64, 128}), ints({2, 8, 11})};
  const auto plan = ops::plan_attention("test", in.q, in.k, in.v, options);
  const auto run = [&](bool compact, AttentionRun& result) {
    const auto rows = [&](const Tensor& t) { return compact ? gather(t, options.queries) : t; };
    const Tensor q = rows(in.q);
    const Tensor grad_out = rows(in.grad_out);
    const Tensor grad_lse = rows(in.grad_lse);
    const Shape lse_shape{q.size(0), q.size(1), q.size(2)};
    const Tensor base2 = zeros(lse_shape);
    result = {zeros(q.shape()), zeros(lse_shape), zeros(q.shape()), clone(in.k), clone(in.v)};
    kernels::AttentionProblem problem = plan->problem;
    problem.slots.compact = compact;
    kernels::AttentionForward args{problem};
    args.q = head_rows(q);
    args.k = head_rows(in.k);
    args.v = head_rows(in.v);
    args.out = head_rows(result.out);
    args.lse = head_rows(base2);
    args.natural_lse = head_rows(result.lse);
    forward(args);
    kernels::AttentionBackward grads{problem};
    grads.q = args.q;
    grads.k = args.k;
    grads.v = args.v;
    grads.out = args.out;
    grads.lse = args.lse;
    grads.grad_out = head_rows(grad_out);
    grads.grad_lse = head_rows(grad_lse);
    grads.grad_q = head_rows(result.grad_q);
    grads.grad_k = head_rows(result.grad_k);
    grads.grad_v = head_rows(result.grad_v);
    backward(grads);
    if (!compact) {
      result.out = gather(result.out, options.queries);
      result.lse = gather(result.lse, options.queries);
      result.grad_q = gather(result.grad_q, options.queries);
    }
  };
  AttentionRun compact, by_token;
  run(true, compact);
  run(false, by_token);
  expect_same_bits(compact, by_token, "compact");
}

// Two calls over disjoint queries add up to one over all of them: bf16 gradients in f32, so that
// the sum is rounded once.
TEST(AttentionKernel, GradientsOfKeysAccumulateInF32) {
  const AttentionCase c{"", 1, 2, 1, 600, 600, 24};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const AttentionInputs in = inputs_of(c, dtype, dtype);
    std::vector<int32_t> positions;
    for (const int parity : {0, 1}) {
      for (int32_t t = parity; t < 600; t += 2) positions.push_back(t);
    }
    const Tensor out = zeros(in.q.shape(), {dtype, {}});
    const Tensor grad_q = zeros(in.q.shape(), {dtype, {}});
    const Tensor lse = zeros({1, 2, 600});
    const Tensor grad_k = zeros(in.k.shape()), grad_v = zeros(in.k.shape());
    for (const int half : {0, 1}) {
      ops::AttentionOptions options;
      options.queries = {ints(positions), ints({300 * half, 300 * (half + 1)})};
      const auto plan = ops::plan_attention("test", in.q, in.k, in.v, options);
      kernels::AttentionForward args{plan->problem};
      args.q = head_rows(in.q);
      args.k = head_rows(in.k);
      args.v = head_rows(in.v);
      args.out = head_rows(out);
      args.lse = head_rows(lse);
      forward(args);
      kernels::AttentionBackward grads{plan->problem};
      grads.q = args.q;
      grads.k = args.k;
      grads.v = args.v;
      grads.out = args.out;
      grads.lse = args.lse;
      grads.grad_out = head_rows(in.grad_out);
      grads.grad_q = head_rows(grad_q);
      grads.grad_k = head_rows(grad_k);
      grads.grad_v = head_rows(grad_v);
      grads.kv_grad_dtype = DType::f32;
      grads.accumulate = half == 1;
      backward(grads);
    }
    const AttentionRun whole = run_attention(
        [](const auto& q, const auto& k, const auto& v) {
          return ops::AttentionOutput{ops::attention(q, k, v), {}};
        },
        in);
    EXPECT_TRUE(bit_equal(out, whole.out));
    EXPECT_TRUE(bit_equal(grad_q, whole.grad_q));
    const Tolerance tolerance =
        dtype == DType::f32 ? tolerance_for(dtype, 600) : Tolerance{1e-5, 1.0 / 256};
    EXPECT_TRUE(near(grad_k, whole.grad_k, tolerance));
    EXPECT_TRUE(near(grad_v, whole.grad_v, tolerance));
  }
}

}  // namespace
}  // namespace sluice
