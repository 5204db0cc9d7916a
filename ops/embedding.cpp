#include "ops/embedding.h"

#include "autograd/node.h"
#include "kernels/embedding.h"
#include "ops/check.h"
#include "ops/gemm_operand.h"

namespace sluice::ops {
namespace {

constexpr const char* kOp = "embedding";

struct Embedding final : autograd::Node {
  Embedding(const Tensor& weight, const Tensor& ids) : Node(kOp, {weight}), shape_(weight.shape()) {
    save({ids});
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor& ids = saved(0);
    const Rows grad_out = as_rows(grads[0]);
    const Tensor grad_weight = empty(shape_, {grads[0].dtype(), grads[0].device()});
    kernels::EmbeddingBackward args{
        .dtype = grad_weight.dtype(),
        .id_dtype = ids.dtype(),
        .count = ids.numel(),
        .vocabulary = shape_[0],
        .width = shape_[1],
        .ids = ids.raw(),
        .grad_out = grad_out.tensor.raw(),
        .grad_out_row_stride = grad_out.stride,
        .grad_weight = grad_weight.raw(),
        .scratch = nullptr};
    const auto bytes = int64_t(kernels::embedding_backward_scratch_bytes(args));
    const Tensor scratch = empty({bytes}, {DType::u8, ids.device()});
    args.scratch = scratch.raw();
    SLUICE_LAUNCH(ids.device(), kOp, kernels::embedding_backward, args);
    return {grad_weight};
  }

  Shape shape_;
};

}  // namespace

Tensor embedding(const Tensor& weight, const Tensor& ids) {
  check_floating(weight, kOp, "weight");
  check_ids(ids, kOp, "ids");
  check_device(ids, weight.device(), kOp, "ids");
  SLUICE_CHECK(
      weight.rank() == 2,
      ShapeError,
      "embedding: weight must have shape (V, C), got {}",
      to_string(weight.shape()));
  std::vector<int64_t> dims(ids.shape().dims().begin(), ids.shape().dims().end());
  dims.push_back(weight.size(1));
  const Tensor out = empty(Shape(dims), {weight.dtype(), weight.device()});
  const Rows table = as_rows(weight);
  const Tensor dense_ids = to_contiguous(ids);
  const Tensor outside = empty({1}, {DType::i64, weight.device()});
  const kernels::EmbeddingForward args{
      .dtype = weight.dtype(),
      .id_dtype = ids.dtype(),
      .count = ids.numel(),
      .vocabulary = weight.size(0),
      .width = weight.size(1),
      .weight = table.tensor.raw(),
      .weight_row_stride = table.stride,
      .ids = dense_ids.raw(),
      .out = out.raw(),
      .first_outside = outside.data<int64_t>()};
  SLUICE_LAUNCH(weight.device(), kOp, kernels::embedding_forward, args);
  const int64_t position = outside.item<int64_t>();
  SLUICE_CHECK(
      position < 0,
      ArgumentError,
      "embedding: ids must be in [-1, {}), got {} at position {}",
      weight.size(0),
      to_dtype(dense_ids, DType::i64).data<int64_t>()[position],
      position);
  if (autograd::should_record({weight})) autograd::record<Embedding>(out, weight, dense_ids);
  return out;
}

}  // namespace sluice::ops
