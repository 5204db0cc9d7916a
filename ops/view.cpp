#include "ops/view.h"

#include <optional>

#include "autograd/node.h"
#include "engine/errors.h"
#include "ops/broadcast.h"
#include "ops/cat.h"
#include "ops/check.h"
#include "ops/contiguous.h"
#include "ops/sum_to.h"

namespace sluice::ops {
namespace {

// Backward of every view that keeps all elements in row-major order.
struct Reshape final : autograd::Node {
  Reshape(const char* name, const Tensor& x) : Node(name, {x}), shape(x.shape()) {}

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    return {reshape(grads[0], shape)};
  }

  Shape shape;
};

struct Permute final : autograd::Node {
  Permute(const Tensor& x, const std::vector<int>& axes) : Node("permute", {x}), inverse(axes) {
    for (size_t i = 0; i < axes.size(); ++i) inverse[size_t(axes[i])] = int(i);
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    return {permute(grads[0], inverse)};
  }

  std::vector<int> inverse;
};

// Backward of slice and select: the output is the part of x with these strides from this offset.
struct Part final : autograd::Node {
  Part(const char* name, const Tensor& x, int sliced, int64_t first, int64_t stride)
      : Node(name, {x}), shape(x.shape()), axis(sliced), begin(first), step(stride) {}

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor& grad = grads[0];
    const Tensor out = zeros(shape, {grad.dtype(), grad.device()});
    if (grad.numel() == 0) return {out};
    const bool selected = grad.rank() < shape.rank();
    const Strides dense = out.strides();
    Strides strides{};
    for (int a = 0, to = 0; a < shape.rank(); ++a) {
      if (a == axis && selected) continue;
      strides[size_t(to++)] = dense[size_t(a)] * (a == axis ? step : 1);
    }
    copy_elements(out.alias(grad.shape(), strides, begin * dense[size_t(axis)]), grad);
    return {out};
  }

  Shape shape;
  int axis;
  int64_t begin;
  int64_t step;
};

struct Expand final : autograd::Node {
  explicit Expand(const Tensor& x) : Node("expand", {x}), shape(x.shape()) {}

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    return {sum_to(grads[0], shape)};
  }

  Shape shape;
};

struct Split final : autograd::Node {
  Split(const Tensor& x, int cut, const std::vector<int64_t>& extents)
      : Node("split", {x}), shape(x.shape()), axis(cut), sizes(extents) {}

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    // Called only when some piece has a gradient: that one tells dtype and device.
    TensorOptions options;
    for (const Tensor& grad : grads) {
      if (grad.defined()) options = {grad.dtype(), grad.device()};
    }
    std::vector<Tensor> pieces(grads.begin(), grads.end());
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].defined()) continue;
      std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
      dims[size_t(axis)] = sizes[i];
      pieces[i] = zeros(Shape(dims), options);
    }
    return {cat(pieces, axis)};
  }

  Shape shape;
  int axis;
  std::vector<int64_t> sizes;
};

Shape resolve(const Tensor& x, const std::vector<int64_t>& wanted) {
  std::vector<int64_t> dims = wanted;
  int64_t known = 1;
  int unknown = -1;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] != -1) {
      known *= dims[i];
      continue;
    }
    SLUICE_CHECK(unknown < 0, ShapeError, "reshape: shape must have one -1 at most");
    unknown = int(i);
  }
  if (unknown >= 0) {
    SLUICE_CHECK(
        known > 0 && x.numel() % known == 0,
        ShapeError,
        "reshape: extents beside -1 must divide {} elements, got product {}",
        x.numel(),
        known);
    dims[size_t(unknown)] = x.numel() / known;
  }
  const Shape shape{std::span<const int64_t>(dims)};
  SLUICE_CHECK(
      shape.numel() == x.numel(),
      ShapeError,
      "reshape: shape must have {} elements as {}, got {}",
      x.numel(),
      to_string(x.shape()),
      to_string(shape));
  return shape;
}

// Strides under which `shape` walks x in row-major order, if there are any. Runs of axes of x that
// could be merged into one are matched, from the last, with axes of `shape` of the same product.
std::optional<Strides> view_strides(const Tensor& x, const Shape& shape) {
  if (x.contiguous()) return contiguous_strides(shape);
  Strides strides{};
  int axis = shape.rank() - 1;
  int64_t run = 1;      // elements of x in the current run
  int64_t matched = 1;  // elements of `shape` laid over it so far
  int64_t step = x.strides()[size_t(x.rank() - 1)];
  for (int a = x.rank() - 1; a >= 0; --a) {
    run *= x.shape()[a];
    const bool merges =
        a > 0 && (x.shape()[a - 1] == 1 || x.strides()[size_t(a - 1)] == run * step);
    if (merges) continue;
    while (axis >= 0 && (matched < run || shape[axis] == 1)) {
      strides[size_t(axis)] = matched * step;
      matched *= shape[axis--];
    }
    if (matched != run) return std::nullopt;
    if (a > 0) step = x.strides()[size_t(a - 1)];
    run = matched = 1;
  }
  return strides;
}

std::pair<std::vector<int64_t>, Strides> layout_of(const Tensor& x) {
  return {{x.shape().dims().begin(), x.shape().dims().end()}, x.strides()};
}

int64_t wrap(int64_t index, int64_t extent) { return index < 0 ? index + extent : index; }

}  // namespace

Tensor reshape(const Tensor& x, const std::vector<int64_t>& wanted) {
  check_defined(x, "reshape", "x");
  const Shape shape = resolve(x, wanted);
  if (shape == x.shape()) return x;
  const auto strides = view_strides(x, shape);
  Tensor out;
  if (strides) {
    out = x.alias(shape, *strides, x.offset());
  } else {
    out = empty(shape, {x.dtype(), x.device()});
    copy_elements(out.alias(x.shape(), contiguous_strides(x.shape()), 0), x);
  }
  if (autograd::should_record({x})) autograd::record<Reshape>(out, "reshape", x);
  return out;
}

Tensor permute(const Tensor& x, const std::vector<int>& axes) {
  check_defined(x, "permute", "x");
  SLUICE_CHECK(
      int(axes.size()) == x.rank(),
      ShapeError,
      "permute: axes must be {} numbers, got {}",
      x.rank(),
      axes.size());
  std::vector<int> order;
  std::vector<int64_t> dims;
  Strides strides{};
  unsigned seen = 0;
  for (const int given : axes) {
    const int axis = normalize_axis(given, x.rank(), "permute");
    SLUICE_CHECK(
        (seen >> axis & 1u) == 0, ShapeError, "permute: axes must differ, got {} twice", axis);
    seen |= 1u << axis;
    strides[order.size()] = x.strides()[size_t(axis)];
    dims.push_back(x.shape()[axis]);
    order.push_back(axis);
  }
  Tensor out = x.alias(Shape(dims), strides, x.offset());
  if (autograd::should_record({x})) autograd::record<Permute>(out, x, order);
  return out;
}

Tensor transpose(const Tensor& x, int a, int b) {
  check_defined(x, "transpose", "x");
  std::vector<int> axes;
  for (int axis = 0; axis < x.rank(); ++axis) axes.push_back(axis);
  std::swap(
      axes[size_t(normalize_axis(a, x.rank(), "transpose"))],
      axes[size_t(normalize_axis(b, x.rank(), "transpose"))]);
  return permute(x, axes);
}

Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end, int64_t step) {
  check_defined(x, "slice", "x");
  axis = normalize_axis(axis, x.rank(), "slice");
  auto [dims, strides] = layout_of(x);
  int64_t& extent = dims[size_t(axis)];
  begin = wrap(begin, extent);
  end = wrap(end, extent);
  SLUICE_CHECK(
      0 <= begin && begin <= end && end <= extent,
      ShapeError,
      "slice: range must lie in [0, {}] of axis {}, got [{}, {})",
      extent,
      axis,
      begin,
      end);
  SLUICE_CHECK(step >= 1, ArgumentError, "slice: step must be >= 1, got {}", step);
  extent = (end - begin + step - 1) / step;
  const int64_t stride = strides[size_t(axis)];
  strides[size_t(axis)] = stride * step;
  Tensor out = x.alias(Shape(dims), strides, x.offset() + begin * stride);
  if (autograd::should_record({x})) autograd::record<Part>(out, "slice", x, axis, begin, step);
  return out;
}

Tensor select(const Tensor& x, int axis, int64_t index) {
  check_defined(x, "select", "x");
  axis = normalize_axis(axis, x.rank(), "select");
  const int64_t extent = x.shape()[axis];
  const int64_t at = wrap(index, extent);
  SLUICE_CHECK(
      0 <= at && at < extent,
      ShapeError,
      "select: index must be in [{}, {}), got {}",
      -extent,
      extent,
      index);
  std::vector<int64_t> dims;
  Strides strides{};
  for (int a = 0; a < x.rank(); ++a) {
    if (a == axis) continue;
    strides[dims.size()] = x.strides()[size_t(a)];
    dims.push_back(x.shape()[a]);
  }
  Tensor out = x.alias(Shape(dims), strides, x.offset() + at * x.strides()[size_t(axis)]);
  if (autograd::should_record({x})) autograd::record<Part>(out, "select", x, axis, at, 1);
  return out;
}

Tensor expand(const Tensor& x, const Shape& shape) {
  check_defined(x, "expand", "x");
  SLUICE_CHECK(
      broadcast_shapes(x.shape(), shape, "expand") == shape,
      ShapeError,
      "expand: x must broadcast to {}, got {}",
      to_string(shape),
      to_string(x.shape()));
  Tensor out = x.alias(shape, broadcast_strides(x, shape), x.offset());
  if (autograd::should_record({x})) autograd::record<Expand>(out, x);
  return out;
}

Tensor unsqueeze(const Tensor& x, int axis) {
  check_defined(x, "unsqueeze", "x");
  axis = normalize_axis(axis, x.rank() + 1, "unsqueeze");
  std::vector<int64_t> dims;
  Strides strides{};
  for (int a = 0; a <= x.rank(); ++a) {
    const int from = a - (a > axis ? 1 : 0);
    strides[size_t(a)] = a == axis ? 1 : x.strides()[size_t(from)];
    dims.push_back(a == axis ? 1 : x.shape()[from]);
  }
  Tensor out = x.alias(Shape(dims), strides, x.offset());
  if (autograd::should_record({x})) autograd::record<Reshape>(out, "unsqueeze", x);
  return out;
}

Tensor squeeze(const Tensor& x, int axis) {
  check_defined(x, "squeeze", "x");
  axis = normalize_axis(axis, x.rank(), "squeeze");
  SLUICE_CHECK(
      x.shape()[axis] == 1,
      ShapeError,
      "squeeze: axis {} must have extent 1, got {}",
      axis,
      to_string(x.shape()));
  std::vector<int64_t> dims;
  Strides strides{};
  for (int a = 0; a < x.rank(); ++a) {
    if (a == axis) continue;
    strides[dims.size()] = x.strides()[size_t(a)];
    dims.push_back(x.shape()[a]);
  }
  Tensor out = x.alias(Shape(dims), strides, x.offset());
  if (autograd::should_record({x})) autograd::record<Reshape>(out, "squeeze", x);
  return out;
}

std::vector<Tensor> split(const Tensor& x, int axis, const std::vector<int64_t>& sizes) {
  check_defined(x, "split", "x");
  axis = normalize_axis(axis, x.rank(), "split");
  std::vector<Tensor> pieces;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    auto [dims, strides] = layout_of(x);
    SLUICE_CHECK(
        size >= 0 && begin + size <= dims[size_t(axis)],
        ShapeError,
        "split: sizes must add up to {}, got {} after {}",
        x.shape()[axis],
        size,
        begin);
    dims[size_t(axis)] = size;
    pieces.push_back(x.alias(Shape(dims), strides, x.offset() + begin * strides[size_t(axis)]));
    begin += size;
  }
  SLUICE_CHECK(
      begin == x.shape()[axis],
      ShapeError,
      "split: sizes must add up to {}, got {}",
      x.shape()[axis],
      begin);
  if (autograd::should_record({x})) {
    autograd::set_history(std::make_shared<Split>(x, axis, sizes), pieces);
  }
  return pieces;
}

}  // namespace sluice::ops
