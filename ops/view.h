// Other shapes for the same memory. Unless said otherwise the result shares storage with `x`,
// nothing is copied, and a gradient flows through.
#pragma once

#include <concepts>
#include <vector>

#include "engine/tensor.h"

namespace sluice::ops {

/// The elements in row-major order under another shape.
///
/// A view when the strides allow it (always when `x` is dense, and when each new axis lies within
/// axes of `x` that could be merged); otherwise a dense copy.
///
/// Shapes  one extent of `shape` may be -1: it follows from the others; the product must be numel()
/// DTypes  all
/// Grads   x
/// Throws  ShapeError (product differs, two -1, -1 beside an extent of 0)
Tensor reshape(const Tensor& x, const std::vector<int64_t>& shape);
/// A template so that a braced list means the overload above.
template <std::same_as<Shape> S>
Tensor reshape(const Tensor& x, const S& shape) {
  return reshape(x, std::vector<int64_t>(shape.dims().begin(), shape.dims().end()));
}

/// out[i_0, i_1, ..] has extents x.size(axes[0]), x.size(axes[1]), ..
/// Throws  ShapeError unless `axes` names each axis once (negative counts from the end)
Tensor permute(const Tensor& x, const std::vector<int>& axes);

/// Swaps two axes. Throws ShapeError.
Tensor transpose(const Tensor& x, int a, int b);

/// Every step-th index of [begin, end) along `axis`.
///
///   out[.., i, ..] = x[.., begin + i * step, ..]
///
/// Shapes  the extent becomes ceil((end - begin) / step); negative begin and end count from the end
/// Grads   x: written into zeros of its shape; cut a tensor in pieces with split instead
/// Throws  ShapeError unless 0 <= begin <= end <= extent; ArgumentError (step < 1)
Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end, int64_t step = 1);

/// The slice at `index` (negative counts from the end) with `axis` removed. Throws ShapeError.
Tensor select(const Tensor& x, int axis, int64_t index);

/// Repeats extents of 1 (and adds leading axes) without copying: strides of 0.
///
///   out[.., i, ..] = x[.., 0, ..] along repeated axes
///
/// Shapes  x broadcasts to `shape`
/// Grads   x: the sum over the repeated axes
/// Throws  ShapeError
Tensor expand(const Tensor& x, const Shape& shape);

/// Inserts an extent of 1 before `axis` in [-rank-1, rank]. Throws ShapeError.
Tensor unsqueeze(const Tensor& x, int axis);

/// Removes `axis`, whose extent is 1. Throws ShapeError.
Tensor squeeze(const Tensor& x, int axis);

/// Pieces of the given extents along `axis`, in order.
///
/// Shapes  the extents add up to x.size(axis)
/// Grads   x: one cat of the pieces' gradients, zeros for pieces that nothing used
/// Throws  ShapeError
std::vector<Tensor> split(const Tensor& x, int axis, const std::vector<int64_t>& sizes);

}  // namespace sluice::ops
