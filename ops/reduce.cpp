#include "ops/reduce.h"

#include "autograd/node.h"
#include "engine/errors.h"
#include "kernels/reduce.h"
#include "ops/binary.h"
#include "ops/broadcast.h"
#include "ops/check.h"
#include "ops/contiguous.h"
#include "ops/sum_to.h"
#include "ops/view.h"

namespace sluice::ops {
namespace {

using AxisSet = std::array<bool, kMaxRank>;

// The part of a shape that is kept or reduced, with the strides of two tensors along it.
struct Part {
  std::vector<int64_t> dims;
  Strides x{};
  Strides y{};

  void append(int64_t extent, int64_t x_stride, int64_t y_stride) {
    x[dims.size()] = x_stride;
    y[dims.size()] = y_stride;
    dims.push_back(extent);
  }
  StridedLoop<2> loop() const { return StridedLoop<2>(Shape(dims), {x, y}); }
};

struct Parts {
  Part kept, reduced;

  Parts(const Shape& shape, const Strides& x, const Strides& y, const AxisSet& reduce) {
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const auto a = size_t(axis);
      (reduce[a] ? reduced : kept).append(shape[axis], x[a], y[a]);
    }
  }
};

// `out` is dense with the kept extents in order (extents of 1 do not matter).
void launch_reduce(
    const char* op,
    kernels::ReduceFunction function,
    const Tensor& out,
    const Tensor& x,
    const Tensor& y,
    const AxisSet& axes,
    double scale) {
  const Strides y_strides = y.defined() ? broadcast_strides(y, x.shape()) : x.strides();
  const Parts parts(x.shape(), x.strides(), y_strides, axes);
  kernels::ReduceArgs args{
      function,
      x.dtype(),
      out.raw(),
      x.raw(),
      y.defined() ? y.raw() : nullptr,
      scale,
      parts.kept.loop(),
      parts.reduced.loop()};
  kernels::plan_reduce(args);
  Tensor scratch;
  if (const int64_t bytes = kernels::reduce_scratch_bytes(args); bytes > 0) {
    scratch = empty({bytes}, {DType::u8, x.device()});
    args.partials = static_cast<double*>(scratch.raw());
  }
  SLUICE_LAUNCH(x.device(), op, kernels::reduce, args);
}

AxisSet axis_set(const Tensor& x, const std::vector<int>& axes, const char* op) {
  AxisSet set{};
  for (int axis = 0; axis < x.rank() && axes.empty(); ++axis) set[size_t(axis)] = true;
  for (const int given : axes) {
    const int axis = normalize_axis(given, x.rank(), op);
    SLUICE_CHECK(!set[size_t(axis)], ShapeError, "{}: axes must differ, got {} twice", op, axis);
    set[size_t(axis)] = true;
  }
  return set;
}

// The extents of x with reduced axes as 1, or without them.
Shape reduced_shape(const Shape& shape, const AxisSet& axes, KeepDim keep) {
  std::vector<int64_t> dims;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (!axes[size_t(axis)])
      dims.push_back(shape[axis]);
    else if (keep == KeepDim::yes)
      dims.push_back(1);
  }
  return Shape(dims);
}

int64_t reduced_count(const Shape& shape, const AxisSet& axes) {
  int64_t count = 1;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (axes[size_t(axis)]) count *= shape[axis];
  }
  return count;
}

// Backward of sum and mean: scale * gradient, repeated.
struct Sum final : autograd::Node {
  Sum(const char* name, const Tensor& x, const AxisSet& axes, double factor)
      : Node(name, {x}),
        shape(x.shape()),
        kept(reduced_shape(x.shape(), axes, KeepDim::yes)),
        scale(factor) {}

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor grad = scale == 1 ? grads[0] : mul(grads[0], scale);
    return {ops::expand(reshape(grad, kept), shape)};
  }

  Shape shape;
  Shape kept;
  double scale;
};

struct Max final : autograd::Node {
  Max(const Tensor& x, const Tensor& out, const AxisSet& reduced)
      : Node("max", {x}), axes(reduced) {
    save({x, out});
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor& x = saved(0);
    const Tensor grad = contiguous(grads[0]);
    const Tensor grad_x = zeros_like(x);
    const Parts parts(x.shape(), x.strides(), grad_x.strides(), axes);
    const kernels::MaxGradientArgs args{
        x.dtype(),
        grad_x.raw(),
        x.raw(),
        saved(1).raw(),
        grad.raw(),
        parts.kept.loop(),
        parts.reduced.loop()};
    SLUICE_LAUNCH(x.device(), "max", kernels::max_gradient, args);
    return {grad_x};
  }

  AxisSet axes;
};

Tensor scaled_sum(
    const char* op, const Tensor& x, const AxisSet& axes, KeepDim keep, double scale) {
  Tensor out = empty(reduced_shape(x.shape(), axes, keep), {x.dtype(), x.device()});
  launch_reduce(op, kernels::ReduceFunction::sum, out, x, {}, axes, scale);
  if (autograd::should_record({x})) autograd::record<Sum>(out, op, x, axes, scale);
  return out;
}

}  // namespace

Tensor sum(const Tensor& x, const std::vector<int>& axes, KeepDim keep) {
  check_floating(x, "sum", "x");
  return scaled_sum("sum", x, axis_set(x, axes, "sum"), keep, 1.0);
}

Tensor mean(const Tensor& x, const std::vector<int>& axes, KeepDim keep) {
  check_floating(x, "mean", "x");
  const AxisSet set = axis_set(x, axes, "mean");
  return scaled_sum("mean", x, set, keep, 1.0 / double(reduced_count(x.shape(), set)));
}

Tensor max(const Tensor& x, const std::vector<int>& axes, KeepDim keep) {
  check_floating(x, "max", "x");
  const AxisSet set = axis_set(x, axes, "max");
  SLUICE_CHECK(
      reduced_count(x.shape(), set) > 0,
      ArgumentError,
      "max: reduced axes must hold an element, got {}",
      to_string(x.shape()));
  Tensor out = empty(reduced_shape(x.shape(), set, keep), {x.dtype(), x.device()});
  launch_reduce("max", kernels::ReduceFunction::max, out, x, {}, set, 1.0);
  if (autograd::should_record({x})) autograd::record<Max>(out, x, out, set);
  return out;
}

namespace {

Tensor reduce_to(const Tensor& x, const Tensor& y, const Shape& shape) {
  AxisSet axes{};
  const int added = x.rank() - shape.rank();
  for (int axis = 0; axis < x.rank(); ++axis) {
    axes[size_t(axis)] = axis < added || (shape[axis - added] == 1 && x.shape()[axis] != 1);
  }
  Tensor out = empty(shape, {x.dtype(), x.device()});
  launch_reduce("sum_to", kernels::ReduceFunction::sum, out, x, y, axes, 1.0);
  return out;
}

}  // namespace

Tensor sum_to(const Tensor& x, const Shape& shape) {
  return x.shape() == shape ? x : reduce_to(x, {}, shape);
}

Tensor sum_products_to(const Tensor& x, const Tensor& y, const Shape& shape) {
  return reduce_to(x, y, shape);
}

}  // namespace sluice::ops
