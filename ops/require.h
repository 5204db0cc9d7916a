// The shape check that many ops make, beside those of ops/check.h.
#pragma once

#include "engine/errors.h"
#include "engine/tensor.h"
#include "ops/check.h"

namespace sluice::ops {

/// Throws ShapeError unless `tensor` has shape `expected`.
inline void require_shape(
    const char* op, const char* name, const Tensor& tensor, const Shape& expected) {
  SLUICE_CHECK(
      tensor.shape() == expected,
      ShapeError,
      "{}: {} must have shape {}, got {}",
      op,
      name,
      to_string(expected),
      to_string(tensor.shape()));
}

/// `tensor` is defined and has shape `expected`, and the dtype and device of `reference`.
inline void require_like(
    const char* op,
    const char* name,
    const Tensor& tensor,
    const Shape& expected,
    const Tensor& reference) {
  check_like(tensor, reference, op, name);
  require_shape(op, name, tensor, expected);
}

}  // namespace sluice::ops
