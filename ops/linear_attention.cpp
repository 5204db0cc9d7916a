#include "ops/linear_attention.h"

#include "autograd/node.h"
#include "engine/context.h"
#include "kernels/linear_attention.h"
#include "ops/attention_plan.h"
#include "ops/head_gate.h"
#include "ops/head_layout.h"
#include "ops/require.h"

namespace sluice::ops {
namespace {

using PlanPointer = std::shared_ptr<const AttentionPlan>;

struct LinearAttention final : autograd::Node {
  LinearAttention(
      std::initializer_list<Tensor> inputs,
      std::initializer_list<Tensor> kept,
      PlanPointer attention_plan)
      : Node("linear_attention", inputs), plan(std::move(attention_plan)) {
    save(kept);
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor& q = saved(0);
    const Tensor& k = saved(1);
    const Tensor& v = saved(2);
    const Tensor grad_out = with_dense_rows(grads[0]);
    const Tensor grad_q = needs(0) ? new_heads(q, plan->covers_queries) : Tensor();
    const Tensor grad_k = needs(1) ? new_heads(k, plan->covers_keys) : Tensor();
    const Tensor grad_v = needs(2) ? new_heads(v, plan->covers_keys) : Tensor();
    kernels::LinearAttentionBackward args{plan->problem};
    args.q = head_rows(q);
    args.k = head_rows(k);
    args.v = head_rows(v);
    args.out = head_rows(saved(3));
    args.normalizer = head_rows(saved(4));
    args.grad_out = head_rows(grad_out);
    if (grad_q.defined()) args.grad_q = head_rows(grad_q);
    if (grad_k.defined()) args.grad_k = head_rows(grad_k);
    if (grad_v.defined()) args.grad_v = head_rows(grad_v);
    args.kv_grad_dtype = q.dtype();
    const int threads = cpu_context().threads.size();
    const Tensor scratch =
        new_scratch(kernels::linear_attention_backward_scratch_bytes(args, threads), q.device());
    args.scratch = scratch.raw();
    SLUICE_LAUNCH(q.device(), "linear_attention", kernels::linear_attention_backward, args);
    return {grad_q, grad_k, grad_v};
  }

  PlanPointer plan;
};

void launch(kernels::LinearAttentionForward& args, Device device) {
  const int threads = cpu_context().threads.size();
  const Tensor scratch =
      new_scratch(kernels::linear_attention_forward_scratch_bytes(args, threads), device);
  args.scratch = scratch.raw();
  SLUICE_LAUNCH(device, "linear_attention", kernels::linear_attention_forward, args);
}

// The tokens of k and v go into `state`; q may have none.
Tensor advance(
    const char* op,
    LinearAttentionState& state,
    const Tensor& q,
    const Tensor& k,
    const Tensor& v) {
  const PlanPointer plan = plan_attention(op, q, k, v, {});
  SLUICE_CHECK(
      !autograd::should_record({q, k, v}),
      GradError,
      "{}: inputs must not take part in a graph: the state is written in place",
      op);
  check_defined(state.sums, op, "state");
  require_shape(op, "state", state.sums, {k.size(0), k.size(1), k.size(3), k.size(3) + 1});
  check_dtype(state.sums, sum_dtype(q.dtype()), op, "state");
  check_device(state.sums, q.device(), op, "state");
  SLUICE_CHECK(state.sums.contiguous(), ShapeError, "{}: state must be dense, got strides", op);
  const Tensor q_rows = with_dense_rows(q);
  const Tensor k_rows = with_dense_rows(k);
  const Tensor v_rows = with_dense_rows(v);
  const Tensor out = new_heads(q, true);
  kernels::LinearAttentionForward args{plan->problem};
  args.q = head_rows(q_rows);
  args.k = head_rows(k_rows);
  args.v = head_rows(v_rows);
  args.out = head_rows(out);
  args.state = state.sums.raw();
  launch(args, q.device());
  state.sums.storage()->bump_version();
  return out;
}

}  // namespace

Tensor linear_attention(
    const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  const PlanPointer plan = plan_attention("linear_attention", q, k, v, options);
  const Tensor q_rows = with_dense_rows(q);
  const Tensor k_rows = with_dense_rows(k);
  const Tensor v_rows = with_dense_rows(v);
  const Tensor out = new_heads(q, plan->covers_queries);
  const bool record = autograd::should_record({q, k, v});
  const Shape rows{q.size(0), q.size(1), q.size(2)};
  const Tensor normalizer = record ? empty(rows, {sum_dtype(q.dtype()), q.device()}) : Tensor();
  kernels::LinearAttentionForward args{plan->problem};
  args.q = head_rows(q_rows);
  args.k = head_rows(k_rows);
  args.v = head_rows(v_rows);
  args.out = head_rows(out);
  if (record) args.normalizer = head_rows(normalizer);
  launch(args, q.device());
  if (record) {
    autograd::record<LinearAttention>(
        out,
        std::initializer_list<Tensor>{q, k, v},
        std::initializer_list<Tensor>{q_rows, k_rows, v_rows, out, normalizer},
        plan);
  }
  return apply_head_gate("linear_attention", out, options.head_gate);
}

LinearAttentionState linear_attention_state(
    int64_t batch, int64_t kv_heads, int64_t head_size, TensorOptions options) {
  const TensorOptions sums{sum_dtype(options.dtype), options.device};
  return {zeros({batch, kv_heads, head_size, head_size + 1}, sums)};
}

Tensor linear_attention_step(
    LinearAttentionState& state, const Tensor& q, const Tensor& k, const Tensor& v) {
  check_defined(q, "linear_attention_step", "q");
  check_defined(k, "linear_attention_step", "k");
  SLUICE_CHECK(
      q.rank() == 4 && k.rank() == 4 && q.size(2) == k.size(2),
      ShapeError,
      "linear_attention_step: q must have as many tokens as k {}, got {}",
      to_string(k.shape()),
      to_string(q.shape()));
  return advance("linear_attention_step", state, q, k, v);
}

void linear_attention_absorb(LinearAttentionState& state, const Tensor& k, const Tensor& v) {
  check_defined(k, "linear_attention_absorb", "k");
  SLUICE_CHECK(
      k.rank() == 4,
      ShapeError,
      "linear_attention_absorb: k must have rank 4 (B, Hkv, T, D), got {}",
      to_string(k.shape()));
  const Shape none{k.size(0), k.size(1), 0, k.size(3)};
  advance("linear_attention_absorb", state, empty(none, {k.dtype(), k.device()}), k, v);
}

}  // namespace sluice::ops
