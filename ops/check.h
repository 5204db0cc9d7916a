// Argument checks that most operations share. Each throws "op: argument must be EXPECTED, got
// ACTUAL" with the error type that the docstrings promise.
#pragma once

#include "engine/tensor.h"

namespace sluice::ops {

/// Throws ArgumentError when `tensor` is undefined.
void check_defined(const Tensor& tensor, const char* op, const char* argument);
/// Throws DTypeError unless the dtype is f32, bf16 or f64.
void check_floating(const Tensor& tensor, const char* op, const char* argument);
/// Throws DTypeError unless the dtype is `expected`.
void check_dtype(const Tensor& tensor, DType expected, const char* op, const char* argument);
/// Throws DTypeError unless the dtype is i32 or i64.
void check_ids(const Tensor& tensor, const char* op, const char* argument);
/// Throws DeviceError unless the tensor is on `device`.
void check_device(const Tensor& tensor, Device device, const char* op, const char* argument);
/// `tensor` is defined and has the dtype and device of `reference`.
void check_like(
    const Tensor& tensor, const Tensor& reference, const char* op, const char* argument);

}  // namespace sluice::ops
