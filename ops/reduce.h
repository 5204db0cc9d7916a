// Reductions over some axes or all.
#pragma once

#include <vector>

#include "engine/tensor.h"

namespace sluice::ops {

/// Whether reduced axes stay with extent 1.
enum class KeepDim : uint8_t { no, yes };

/// out[k] = sum over r of x[k, r], r the axes in `axes` (none: all of them).
///
/// Shapes  reduced axes vanish, or stay as 1 with KeepDim::yes; the sum over no elements is 0
/// DTypes  f32, bf16, f64; summed in f32 runs of 256 and f64 beyond, in an order that depends on
///         shape and strides only
/// Grads   x: the gradient repeated (a view)
/// Throws  DTypeError, ShapeError (axis out of range or given twice)
Tensor sum(const Tensor& x, const std::vector<int>& axes = {}, KeepDim keep = KeepDim::no);

/// sum / number of reduced elements, as sum otherwise; the mean of no elements is NaN.
Tensor mean(const Tensor& x, const std::vector<int>& axes = {}, KeepDim keep = KeepDim::no);

/// out[k] = max over r of x[k, r]; NaN when one of them is.
///
/// Shapes, DTypes as sum
/// Grads   x: all of it to the first maximum (or NaN) in row-major order of r
/// Throws  as sum; ArgumentError when there is nothing to choose from
Tensor max(const Tensor& x, const std::vector<int>& axes = {}, KeepDim keep = KeepDim::no);

}  // namespace sluice::ops
