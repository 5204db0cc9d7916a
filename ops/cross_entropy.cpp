#include "ops/cross_entropy.h"

#include "autograd/node.h"
#include "kernels/cross_entropy.h"
#include "ops/check.h"
#include "ops/gemm_operand.h"

namespace sluice::ops {
namespace {

constexpr const char* kOp = "cross_entropy";

kernels::CrossEntropyRows rows_of(
    const Rows& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  return {
      .dtype = logits.tensor.dtype(),
      .id_dtype = targets.dtype(),
      .rows = logits.rows,
      .classes = logits.columns,
      .logits = logits.tensor.raw(),
      .logits_row_stride = logits.stride,
      .targets = targets.raw(),
      .ignored = options.ignore_index,
      .z_loss = options.z_loss};
}

struct CrossEntropy final : autograd::Node {
  CrossEntropy(
      const Tensor& logits,
      const Tensor& targets,
      const Tensor& lse,
      const Tensor& kept,
      const CrossEntropyOptions& options)
      : Node(kOp, {logits}), options_(options) {
    save({logits, targets, lse, kept});
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Rows logits = as_rows(saved(0));
    const Tensor grad_losses = to_contiguous(grads[0]);
    const Tensor grad_logits = empty_like(saved(0));
    const bool mean = options_.reduction == Reduction::mean;
    const kernels::CrossEntropyBackward args{
        rows_of(logits, saved(1), options_),
        saved(2).raw(),
        grad_losses.raw(),
        options_.reduction != Reduction::none,
        mean ? saved(3).data<int64_t>() : nullptr,
        grad_logits.raw()};
    SLUICE_LAUNCH(grad_logits.device(), kOp, kernels::cross_entropy_backward, args);
    return {grad_logits};
  }

  CrossEntropyOptions options_;
};

void check(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  check_floating(logits, kOp, "logits");
  check_ids(targets, kOp, "targets");
  check_device(targets, logits.device(), kOp, "targets");
  SLUICE_CHECK(
      logits.rank() >= 1,
      ShapeError,
      "cross_entropy: logits must have rank >= 1, got {}",
      to_string(logits.shape()));
  const Shape expected(logits.shape().dims().first(size_t(logits.rank() - 1)));
  SLUICE_CHECK(
      targets.shape() == expected,
      ShapeError,
      "cross_entropy: targets must have shape {}, got {}",
      to_string(expected),
      to_string(targets.shape()));
  SLUICE_CHECK(
      options.z_loss >= 0,
      ArgumentError,
      "cross_entropy: z_loss must be >= 0, got {}",
      options.z_loss);
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, CrossEntropyOptions options) {
  check(logits, targets, options);
  const Rows rows = as_rows(logits);
  const Tensor ids = to_contiguous(targets);
  const DType sums = logits.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const bool per_row = options.reduction == Reduction::none;
  const Tensor out = empty(per_row ? targets.shape() : Shape{}, {sums, logits.device()});
  const Tensor lse = empty({rows.rows}, {sums, logits.device()});
  const Tensor counts = empty({2}, {DType::i64, logits.device()});
  kernels::CrossEntropyForward args{
      rows_of(rows, ids, options),
      lse.raw(),
      per_row ? out.raw() : nullptr,
      per_row ? nullptr : out.raw(),
      options.reduction == Reduction::mean,
      counts.data<int64_t>(),
      counts.data<int64_t>() + 1,
      nullptr};
  const auto bytes = int64_t(kernels::cross_entropy_forward_scratch_bytes(args));
  const Tensor scratch = empty({bytes}, {DType::u8, logits.device()});
  args.scratch = scratch.raw();
  SLUICE_LAUNCH(logits.device(), kOp, kernels::cross_entropy_forward, args);

  const int64_t row = counts.to_vector<int64_t>()[1];
  SLUICE_CHECK(
      row < 0,
      ArgumentError,
      "cross_entropy: targets must be in [0, {}) or {}, got {} in row {}",
      logits.size(-1),
      options.ignore_index,
      to_dtype(ids, DType::i64).data<int64_t>()[row],
      row);
  if (autograd::should_record({logits})) {
    autograd::record<CrossEntropy>(out, logits, ids, lse, counts, options);
  }
  return out;
}

}  // namespace sluice::ops
