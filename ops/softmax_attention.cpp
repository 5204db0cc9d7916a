#include "ops/softmax_attention.h"

#include <cmath>

#include "autograd/node.h"
#include "engine/context.h"
#include "ops/attention_plan.h"
#include "ops/head_gate.h"
#include "ops/head_layout.h"

namespace sluice::ops {
namespace {

using PlanPointer = std::shared_ptr<const AttentionPlan>;

Tensor new_lse(const Tensor& q, bool covered) {
  const Shape shape{q.size(0), q.size(1), q.size(2)};
  const TensorOptions options{sum_dtype(q.dtype()), q.device()};
  return covered ? empty(shape, options) : full(shape, -INFINITY, options);
}

struct SoftmaxAttention final : autograd::Node {
  SoftmaxAttention(
      const char* op,
      std::initializer_list<Tensor> inputs,
      std::initializer_list<Tensor> kept,
      PlanPointer attention_plan)
      : Node(op, inputs), plan(std::move(attention_plan)) {
    save(kept);
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor& q = saved(0);
    const Tensor& k = saved(1);
    const Tensor& v = saved(2);
    const Tensor grad_out = grads[0].defined() ? with_dense_rows(grads[0])
                                               : zero_heads(q.shape(), {q.dtype(), q.device()});
    const Tensor grad_lse =
        grads.size() > 1 && grads[1].defined() ? to_contiguous(grads[1]) : Tensor();
    const Tensor grad_q = needs(0) ? new_heads(q, plan->covers_queries) : Tensor();
    const Tensor grad_k = needs(1) ? new_heads(k, plan->covers_keys) : Tensor();
    const Tensor grad_v = needs(2) ? new_heads(v, plan->covers_keys) : Tensor();
    kernels::AttentionBackward args{plan->problem};
    args.q = head_rows(q);
    args.k = head_rows(k);
    args.v = head_rows(v);
    args.out = head_rows(saved(3));
    args.lse = head_rows(saved(4));
    args.grad_out = head_rows(grad_out);
    if (grad_lse.defined()) args.grad_lse = head_rows(grad_lse);
    if (grad_q.defined()) args.grad_q = head_rows(grad_q);
    if (grad_k.defined()) args.grad_k = head_rows(grad_k);
    if (grad_v.defined()) args.grad_v = head_rows(grad_v);
    args.kv_grad_dtype = q.dtype();
    const int threads = cpu_context().threads.size();
    const Tensor scratch =
        new_scratch(kernels::attention_backward_scratch_bytes(args, threads), q.device());
    args.scratch = scratch.raw();
    SLUICE_LAUNCH(q.device(), name(), kernels::attention_backward, args);
    return {grad_q, grad_k, grad_v};
  }

  PlanPointer plan;
};

}  // namespace

AttentionOutput softmax_attention(
    const char* op,
    const Tensor& q,
    const Tensor& k,
    const Tensor& v,
    const AttentionOptions& options,
    int64_t window,
    WantLse want_lse) {
  const PlanPointer plan = plan_attention(op, q, k, v, options, window);
  const Tensor q_rows = with_dense_rows(q);
  const Tensor k_rows = with_dense_rows(k);
  const Tensor v_rows = with_dense_rows(v);
  const Tensor out = new_heads(q, plan->covers_queries);
  const Tensor lse = new_lse(q, plan->covers_queries);
  const Tensor natural_lse = want_lse == WantLse::yes ? new_lse(q, plan->covers_queries) : Tensor();
  kernels::AttentionForward args{plan->problem};
  args.q = head_rows(q_rows);
  args.k = head_rows(k_rows);
  args.v = head_rows(v_rows);
  args.out = head_rows(out);
  args.lse = head_rows(lse);
  if (natural_lse.defined()) args.natural_lse = head_rows(natural_lse);
  const int threads = cpu_context().threads.size();
  const Tensor scratch =
      new_scratch(kernels::attention_forward_scratch_bytes(args, threads), q.device());
  args.scratch = scratch.raw();
  SLUICE_LAUNCH(q.device(), op, kernels::attention_forward, args);
  if (autograd::should_record({q, k, v})) {
    auto node = std::make_shared<SoftmaxAttention>(
        op,
        std::initializer_list<Tensor>{q, k, v},
        std::initializer_list<Tensor>{q_rows, k_rows, v_rows, out, lse},
        plan);
    const Tensor outputs[] = {out, natural_lse};
    autograd::set_history(node, {outputs, want_lse == WantLse::yes ? size_t{2} : size_t{1}});
  }
  return {apply_head_gate(op, out, options.head_gate), natural_lse};
}

}  // namespace sluice::ops
