// Layouts that dense-only code gets wrong.
#pragma once

#include "engine/tensor.h"

namespace sluice::testing {

/// The values of `x` with the axes in reversed order of memory, a gap between neighbours and an
/// offset; NaN (poison) in the gaps.
inline Tensor strided(const Tensor& x) {
  Strides strides{};
  int64_t step = 2;
  for (int axis = 0; axis < x.rank(); ++axis) {
    strides[size_t(axis)] = step;
    step *= x.shape()[axis] + 1;
  }
  const Tensor memory = empty({step + 1}, {x.dtype(), x.device()});
  const Tensor view = memory.alias(x.shape(), strides, 1);
  copy_into(view, x);
  return view;
}

/// f64 normal numbers.
inline Tensor normal(const Shape& shape, uint64_t stream = 0) {
  return randn(shape, 20, stream, {DType::f64, {}});
}

/// 0, 1, 2, .. in row-major order.
inline Tensor counting(const Shape& shape, DType dtype = DType::f64) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.numel(); ++i) values.push_back(double(i));
  return to_dtype(from_values(values, shape), dtype);
}

}  // namespace sluice::testing
