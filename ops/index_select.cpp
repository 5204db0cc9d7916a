#include "ops/index_select.h"

#include "autograd/node.h"
#include "engine/errors.h"
#include "kernels/index_select.h"
#include "ops/check.h"
#include "ops/contiguous.h"

namespace sluice::ops {
namespace {

constexpr const char* kOp = "index_select";

int64_t product(const Shape& shape, int first, int last) {
  int64_t count = 1;
  for (int axis = first; axis < last; ++axis) count *= shape[axis];
  return count;
}

struct IndexSelect final : autograd::Node {
  IndexSelect(const Tensor& x, int axis, const Tensor& ids)
      : Node(kOp, {x}), shape_(x.shape()), axis_(axis) {
    save({ids});
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor& ids = saved(0);
    const Tensor grad = contiguous(grads[0]);
    Tensor grad_x = empty(shape_, {grad.dtype(), grad.device()});
    const int64_t extent = shape_[axis_];
    const int64_t bytes = kernels::index_select_gradient_scratch_bytes(extent, ids.numel());
    const Tensor scratch = empty({bytes}, {DType::u8, grad.device()});
    const kernels::IndexSelectGradient args{
        .dtype = grad.dtype(),
        .id_dtype = ids.dtype(),
        .outer = product(shape_, 0, axis_),
        .extent = extent,
        .count = ids.numel(),
        .inner = product(shape_, axis_ + 1, shape_.rank()),
        .ids = ids.raw(),
        .grad = grad.raw(),
        .grad_x = grad_x.raw(),
        .scratch = static_cast<int64_t*>(scratch.raw())};
    SLUICE_LAUNCH(grad.device(), kOp, kernels::index_select_gradient, args);
    return {grad_x};
  }

 private:
  Shape shape_;
  int axis_;
};

}  // namespace

Tensor index_select(const Tensor& x, int axis, const Tensor& ids) {
  check_defined(x, kOp, "x");
  check_ids(ids, kOp, "ids");
  check_device(ids, x.device(), kOp, "ids");
  axis = normalize_axis(axis, x.rank(), kOp);
  SLUICE_CHECK(
      ids.rank() == 1, ShapeError, "{}: ids must be (N), got {}", kOp, to_string(ids.shape()));
  const Tensor dense = contiguous(x);
  const Tensor dense_ids = contiguous(ids);
  std::vector<int64_t> dims(x.shape().dims().begin(), x.shape().dims().end());
  dims[size_t(axis)] = ids.numel();
  Tensor out = empty(Shape(dims), {x.dtype(), x.device()});
  const Tensor outside = empty({1}, {DType::i64, x.device()});
  const kernels::IndexSelect args{
      .element_bytes = int64_t(size_of(x.dtype())),
      .id_dtype = ids.dtype(),
      .outer = product(x.shape(), 0, axis),
      .extent = x.shape()[axis],
      .count = ids.numel(),
      .inner = product(x.shape(), axis + 1, x.rank()),
      .x = dense.raw(),
      .ids = dense_ids.raw(),
      .out = out.raw(),
      .first_outside = outside.data<int64_t>()};
  SLUICE_LAUNCH(x.device(), kOp, kernels::index_select, args);
  const int64_t position = outside.item<int64_t>();
  SLUICE_CHECK(
      position < 0,
      ArgumentError,
      "{}: ids must be in [-1, {}), got {} at position {}",
      kOp,
      x.shape()[axis],
      to_dtype(dense_ids, DType::i64).data<int64_t>()[position],
      position);
  if (autograd::should_record({dense})) {
    autograd::record<IndexSelect>(out, dense, axis, dense_ids);
  }
  return out;
}

}  // namespace sluice::ops
