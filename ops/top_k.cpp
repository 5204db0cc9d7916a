#include "ops/top_k.h"

#include "autograd/node.h"
#include "engine/context.h"
#include "kernels/top_k.h"
#include "ops/check.h"

namespace sluice::ops {
namespace {

struct TopKNode final : autograd::Node {
  TopKNode(const Tensor& scores, const Tensor& ids)
      : Node("top_k", {scores}), shape(scores.shape()) {
    save({ids});
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor& ids = saved(0);
    const Tensor grad_values = to_contiguous(grads[0]);
    const Tensor grad_scores = empty(shape, {grad_values.dtype(), grad_values.device()});
    const kernels::TopKBackward args{
        .grad_values = grad_values.raw(),
        .ids = ids.data<int32_t>(),
        .grad_scores = grad_scores.raw(),
        .dtype = grad_values.dtype(),
        .rows = ids.numel() / ids.size(-1),
        .experts = grad_scores.size(-1),
        .k = int(ids.size(-1))};
    SLUICE_LAUNCH(ids.device(), "top_k", kernels::top_k_backward, args);
    return {grad_scores};
  }

  Shape shape;
};

}  // namespace

TopK top_k(const Tensor& scores, int k) {
  check_floating(scores, "top_k", "scores");
  SLUICE_CHECK(
      scores.rank() >= 1, ShapeError, "top_k: scores must have rank >= 1, got {}", scores.rank());
  const int64_t experts = scores.size(-1);
  SLUICE_CHECK(
      k >= 1 && k <= experts, ArgumentError, "top_k: k must be in 1..{}, got {}", experts, k);
  const Tensor dense = to_contiguous(scores);
  std::vector<int64_t> dims(scores.shape().dims().begin(), scores.shape().dims().end());
  dims.back() = k;
  const TopK out{
      empty(Shape(dims), {scores.dtype(), scores.device()}),
      empty(Shape(dims), {DType::i32, scores.device()})};
  const kernels::TopK args{
      .scores = dense.raw(),
      .values = out.values.raw(),
      .ids = out.ids.data<int32_t>(),
      .dtype = scores.dtype(),
      .rows = scores.numel() / experts,
      .experts = experts,
      .k = k};
  SLUICE_LAUNCH(scores.device(), "top_k", kernels::top_k, args);
  if (autograd::should_record({scores})) {
    autograd::record<TopKNode>(out.values, scores, out.ids);
  }
  return out;
}

}  // namespace sluice::ops
