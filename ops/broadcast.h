// Broadcasting as strides: what elementwise ops hand to their kernels.
#pragma once

#include "engine/tensor.h"

namespace sluice::ops {

/// Strides under which `x` is read as `shape`, which it broadcasts to: 0 along repeated axes.
inline Strides broadcast_strides(const Tensor& x, const Shape& shape) {
  Strides strides{};
  const int missing = shape.rank() - x.rank();
  for (int axis = missing; axis < shape.rank(); ++axis) {
    const bool repeated = x.shape()[axis - missing] == 1 && shape[axis] != 1;
    strides[size_t(axis)] = repeated ? 0 : x.strides()[size_t(axis - missing)];
  }
  return strides;
}

}  // namespace sluice::ops
