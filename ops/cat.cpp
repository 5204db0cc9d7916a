#include "ops/cat.h"

#include "autograd/node.h"
#include "engine/errors.h"
#include "ops/check.h"
#include "ops/contiguous.h"
#include "ops/view.h"

namespace sluice::ops {
namespace {

struct Cat final : autograd::Node {
  Cat(const std::vector<Tensor>& tensors, int joined)
      : Node("cat", std::span<const Tensor>(tensors)), axis(joined) {
    for (const Tensor& tensor : tensors) sizes.push_back(tensor.size(axis));
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    return split(grads[0], axis, sizes);
  }

  int axis;
  std::vector<int64_t> sizes;
};

}  // namespace

Tensor cat(const std::vector<Tensor>& tensors, int axis) {
  SLUICE_CHECK(!tensors.empty(), ArgumentError, "cat: tensors must be one or more, got none");
  check_defined(tensors[0], "cat", "tensors[0]");
  const Tensor& first = tensors[0];
  axis = normalize_axis(axis, first.rank(), "cat");
  int64_t extent = 0;
  for (const Tensor& tensor : tensors) {
    check_like(tensor, first, "cat", "each tensor");
    bool fits = tensor.rank() == first.rank();
    for (int a = 0; a < first.rank() && fits; ++a) {
      fits = a == axis || tensor.shape()[a] == first.shape()[a];
    }
    SLUICE_CHECK(
        fits,
        ShapeError,
        "cat: each tensor must be {} but for axis {}, got {}",
        to_string(first.shape()),
        axis,
        to_string(tensor.shape()));
    extent += tensor.shape()[axis];
  }
  std::vector<int64_t> dims(first.shape().dims().begin(), first.shape().dims().end());
  dims[size_t(axis)] = extent;
  Tensor out = empty(Shape(dims), {first.dtype(), first.device()});
  int64_t begin = 0;
  for (const Tensor& tensor : tensors) {
    const int64_t offset = begin * out.strides()[size_t(axis)];
    if (tensor.numel() > 0) {
      copy_elements(out.alias(tensor.shape(), out.strides(), offset), tensor);
    }
    begin += tensor.shape()[axis];
  }
  if (autograd::should_record(tensors)) autograd::record<Cat>(out, tensors, axis);
  return out;
}

}  // namespace sluice::ops
