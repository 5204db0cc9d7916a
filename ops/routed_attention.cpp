#include "ops/routed_attention.h"

#include "autograd/node.h"
#include "engine/context.h"
#include "kernels/attention.h"
#include "kernels/linear_attention.h"
#include "ops/attention_plan.h"
#include "ops/gather_rows.h"
#include "ops/head_gate.h"
#include "ops/head_layout.h"
#include "ops/require.h"
#include "ops/scatter_rows.h"
#include "ops/view.h"

namespace sluice::ops {
namespace {

constexpr const char* kOp = "routed_attention";
constexpr int kExperts = 3;
constexpr int kLinear = 1, kWindow = 2;

// The same layout in another dtype; to_dtype itself would lay the heads out densely.
Tensor cast_heads(const Tensor& heads, DType dtype) {
  if (heads.dtype() == dtype) return heads;
  const Shape shape{heads.size(0), heads.size(2), heads.size(1), heads.size(3)};
  const Tensor memory = heads.alias(shape, contiguous_strides(shape), heads.offset());
  return to_dtype(memory, dtype).alias(heads.shape(), heads.strides(), 0);
}

// The queries of one expert.
struct Share {
  int expert;
  kernels::AttentionProblem problem;
  std::shared_ptr<const AttentionPlan> plan;  // owns what `problem` points to
};

// What a share reads and writes. `rows` holds what its backward needs of the forward pass per
// query: the log of the denominator of softmax, the denominator itself of linear attention.
struct Operands {
  Tensor q, k, v, out, rows;
};

// The share's queries to compute, their outputs written, and gradients likewise.
template <class Args>
void set_operands(Args& args, const Operands& x) {
  args.q = head_rows(x.q);
  args.k = head_rows(x.k);
  args.v = head_rows(x.v);
  args.out = head_rows(x.out);
}

void forward(const Share& share, const Operands& x) {
  const Device device = x.q.device();
  const int threads = cpu_context().threads.size();
  if (share.expert == kLinear) {
    kernels::LinearAttentionForward args{share.problem};
    set_operands(args, x);
    args.normalizer = head_rows(x.rows);
    const Tensor scratch =
        new_scratch(kernels::linear_attention_forward_scratch_bytes(args, threads), device);
    args.scratch = scratch.raw();
    SLUICE_LAUNCH(device, kOp, kernels::linear_attention_forward, args);
    return;
  }
  kernels::AttentionForward args{share.problem};
  set_operands(args, x);
  args.lse = head_rows(x.rows);
  const Tensor scratch =
      new_scratch(kernels::attention_forward_scratch_bytes(args, threads), device);
  args.scratch = scratch.raw();
  SLUICE_LAUNCH(device, kOp, kernels::attention_forward, args);
}

struct Gradients {
  Tensor out, q, k, v;      // q, k and v may be undefined
  bool accumulate = false;  // an earlier share has written k and v
};

template <class Args>
void set_gradients(Args& args, const Gradients& grads) {
  args.grad_out = head_rows(grads.out);
  if (grads.q.defined()) args.grad_q = head_rows(grads.q);
  if (grads.k.defined()) args.grad_k = head_rows(grads.k);
  if (grads.v.defined()) args.grad_v = head_rows(grads.v);
  args.kv_grad_dtype = grads.k.defined()   ? grads.k.dtype()
                       : grads.v.defined() ? grads.v.dtype()
                                           : grads.out.dtype();
  args.accumulate = grads.accumulate;
}

void backward(const Share& share, const Operands& x, const Gradients& grads) {
  const Device device = x.q.device();
  const int threads = cpu_context().threads.size();
  if (share.expert == kLinear) {
    kernels::LinearAttentionBackward args{share.problem};
    set_operands(args, x);
    args.normalizer = head_rows(x.rows);
    set_gradients(args, grads);
    const Tensor scratch =
        new_scratch(kernels::linear_attention_backward_scratch_bytes(args, threads), device);
    args.scratch = scratch.raw();
    SLUICE_LAUNCH(device, kOp, kernels::linear_attention_backward, args);
    return;
  }
  kernels::AttentionBackward args{share.problem};
  set_operands(args, x);
  args.lse = head_rows(x.rows);
  set_gradients(args, grads);
  const Tensor scratch =
      new_scratch(kernels::attention_backward_scratch_bytes(args, threads), device);
  args.scratch = scratch.raw();
  SLUICE_LAUNCH(device, kOp, kernels::attention_backward, args);
}

struct RoutedAttention final : autograd::Node {
  RoutedAttention(
      std::initializer_list<Tensor> inputs,
      const Operands& x,
      std::vector<Share> expert_shares,
      bool covers_queries)
      : Node(kOp, inputs), shares(std::move(expert_shares)), covered(covers_queries) {
    save({x.q, x.k, x.v, x.out, x.rows});
  }

  std::vector<Tensor> backward(std::span<const Tensor> grad_outputs) override {
    const Operands x{saved(0), saved(1), saved(2), saved(3), saved(4)};
    const DType dtype = x.q.dtype();
    const Device device = x.q.device();
    // Several bf16 contributions are added up in f32 and rounded once.
    const DType kv_dtype = shares.size() > 1 ? sum_dtype(dtype) : dtype;
    const bool keys_covered = !shares.empty() && shares[0].plan->covers_keys;
    Gradients grads;
    grads.out = with_dense_rows(grad_outputs[0]);
    if (needs(0)) grads.q = new_heads(x.q.shape(), {dtype, device}, covered);
    if (needs(1)) grads.k = new_heads(x.k.shape(), {kv_dtype, device}, keys_covered);
    if (needs(2)) grads.v = new_heads(x.v.shape(), {kv_dtype, device}, keys_covered);
    for (const Share& share : shares) {
      ops::backward(share, x, grads);
      grads.accumulate = true;
    }
    if (grads.k.defined()) grads.k = cast_heads(grads.k, dtype);
    if (grads.v.defined()) grads.v = cast_heads(grads.v, dtype);
    return {grads.q, grads.k, grads.v};
  }

  std::vector<Share> shares;
  bool covered;  // the shares write every row of out and of the gradient of q
};

Tensor attend(
    std::vector<Share> shares, const Tensor& q, const Tensor& k, const Tensor& v, bool covered) {
  Operands x{with_dense_rows(q), with_dense_rows(k), with_dense_rows(v), {}, {}};
  x.out = new_heads(q.shape(), {q.dtype(), q.device()}, covered);
  x.rows = empty({q.size(0), q.size(1), q.size(2)}, {sum_dtype(q.dtype()), q.device()});
  for (const Share& share : shares) forward(share, x);
  if (autograd::should_record({q, k, v})) {
    autograd::record<RoutedAttention>(
        x.out, std::initializer_list<Tensor>{q, k, v}, x, std::move(shares), covered);
  }
  return x.out;
}

// (B, H, T, D) to (B, T, H*D) and back; views, given the layout that heads are stored in.
Tensor merge_heads(const Tensor& x) {
  return reshape(permute(x, {0, 2, 1, 3}), {x.size(0), x.size(2), x.size(1) * x.size(3)});
}
Tensor split_heads(const Tensor& x, int64_t heads) {
  const int64_t width = x.size(2) / heads;
  return permute(reshape(x, {x.size(0), x.size(1), heads, width}), {0, 2, 1, 3});
}

Tensor attend_unfused(
    const std::vector<Share>& shares,
    const Tensor& q,
    const Tensor& k,
    const Tensor& v,
    const RoutingIndex& index,
    bool heads_covered) {
  const int64_t heads = q.size(1);
  const int64_t width = heads * q.size(3);
  const std::vector<Tensor> gathered = gather_rows(merge_heads(q), index);
  std::vector<Tensor> rows(kExperts);
  for (Share share : shares) {
    const auto e = size_t(share.expert);
    const int64_t count = gathered[e].size(0);
    share.problem.slots.compact = true;
    const Tensor compact = split_heads(reshape(gathered[e], {1, count, width}), heads);
    const Tensor out = attend({share}, compact, k, v, heads_covered);
    rows[e] = reshape(merge_heads(out), {count, width});
  }
  return split_heads(scatter_rows(rows, index), heads);
}

void check(const Tensor& q, const RoutingIndex& index, const RoutedAttentionOptions& options) {
  check_floating(q, kOp, "q");
  SLUICE_CHECK(
      index.experts == kExperts && index.choices == 1,
      ArgumentError,
      "{}: index must be over 3 experts with 1 choice per token, got {} and {}",
      kOp,
      index.experts,
      index.choices);
  SLUICE_CHECK(
      q.rank() == 4 && q.size(0) == index.batch && q.size(2) == index.tokens,
      ShapeError,
      "{}: q must have shape ({}, H, {}, D), as the index has, got {}",
      kOp,
      index.batch,
      index.tokens,
      to_string(q.shape()));
  check_device(index.ids, q.device(), kOp, "index");
  SLUICE_CHECK(
      options.window > 0, ArgumentError, "{}: window must be > 0, got {}", kOp, options.window);
  SLUICE_CHECK(
      !options.queries.positions.defined() && !options.queries.offsets.defined() &&
          !options.query_offsets.defined() && !options.key_offsets.defined(),
      ArgumentError,
      "{}: queries, query_offsets and key_offsets must be undefined, got some",
      kOp);
}

}  // namespace

Tensor routed_attention(
    const Tensor& q,
    const Tensor& k,
    const Tensor& v,
    const RoutingIndex& index,
    const RoutedAttentionOptions& options) {
  check(q, index, options);
  AttentionOptions base = options;
  std::vector<Share> shares;
  int64_t routed = 0;
  for (int e = 0; e < kExperts; ++e) {
    base.queries = index.queries(e);
    // Planned even without queries: wrong operands are an error whatever the routes.
    const auto plan = plan_attention(kOp, q, k, v, base, e == kWindow ? options.window : 0);
    routed += index.rows(e);
    if (index.rows(e) > 0) shares.push_back({e, plan->problem, plan});
  }
  const bool heads_covered = !options.live_heads.defined();
  const bool unfused = options.form == RoutedForm::unfused && !shares.empty();
  const bool covered = heads_covered && routed == q.size(0) * q.size(2);
  const Tensor out = unfused ? attend_unfused(shares, q, k, v, index, heads_covered)
                             : attend(std::move(shares), q, k, v, covered);
  return apply_head_gate(kOp, out, options.head_gate);
}

}  // namespace sluice::ops
