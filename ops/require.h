// The argument checks that nearly every op makes, with the wording of engine/errors.h.
#pragma once

#include "engine/errors.h"
#include "engine/tensor.h"

namespace sluice::ops {

/// Throws DTypeError unless `tensor` is f32, bf16 or f64.
inline void require_floating(const char* op, const char* name, const Tensor& tensor) {
  SLUICE_CHECK(
      is_floating(tensor.dtype()),
      DTypeError,
      "{}: {} must be floating, got {}",
      op,
      name,
      name_of(tensor.dtype()));
}

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

/// Throws DTypeError unless `tensor` has dtype `expected`.
inline void require_dtype(const char* op, const char* name, const Tensor& tensor, DType expected) {
  SLUICE_CHECK(
      tensor.dtype() == expected,
      DTypeError,
      "{}: {} must be {}, got {}",
      op,
      name,
      name_of(expected),
      name_of(tensor.dtype()));
}

/// Throws DeviceError unless `tensor` is on the device of `reference`.
inline void require_same_device(
    const char* op, const char* name, const Tensor& tensor, const Tensor& reference) {
  SLUICE_CHECK(
      tensor.device() == reference.device(),
      DeviceError,
      "{}: {} must be on {}, got {}",
      op,
      name,
      to_string(reference.device()),
      to_string(tensor.device()));
}

/// All three: shape `expected`, dtype and device of `reference`.
inline void require_like(
    const char* op,
    const char* name,
    const Tensor& tensor,
    const Shape& expected,
    const Tensor& reference) {
  require_shape(op, name, tensor, expected);
  require_dtype(op, name, tensor, reference.dtype());
  require_same_device(op, name, tensor, reference);
}

}  // namespace sluice::ops
