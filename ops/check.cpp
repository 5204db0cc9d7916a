#include "ops/check.h"

#include "engine/errors.h"

namespace sluice::ops {

void check_defined(const Tensor& tensor, const char* op, const char* argument) {
  SLUICE_CHECK(
      tensor.defined(), ArgumentError, "{}: {} must be a tensor, got undefined", op, argument);
}

void check_floating(const Tensor& tensor, const char* op, const char* argument) {
  check_defined(tensor, op, argument);
  SLUICE_CHECK(
      is_floating(tensor.dtype()),
      DTypeError,
      "{}: {} must be floating, got {}",
      op,
      argument,
      name_of(tensor.dtype()));
}

void check_dtype(const Tensor& tensor, DType expected, const char* op, const char* argument) {
  check_defined(tensor, op, argument);
  SLUICE_CHECK(
      tensor.dtype() == expected,
      DTypeError,
      "{}: {} must be {}, got {}",
      op,
      argument,
      name_of(expected),
      name_of(tensor.dtype()));
}

void check_ids(const Tensor& tensor, const char* op, const char* argument) {
  check_defined(tensor, op, argument);
  SLUICE_CHECK(
      tensor.dtype() == DType::i32 || tensor.dtype() == DType::i64,
      DTypeError,
      "{}: {} must be i32 or i64, got {}",
      op,
      argument,
      name_of(tensor.dtype()));
}

void check_device(const Tensor& tensor, Device device, const char* op, const char* argument) {
  SLUICE_CHECK(
      tensor.device() == device,
      DeviceError,
      "{}: {} must be on {}, got {}",
      op,
      argument,
      to_string(device),
      to_string(tensor.device()));
}

void check_like(
    const Tensor& tensor, const Tensor& reference, const char* op, const char* argument) {
  check_dtype(tensor, reference.dtype(), op, argument);
  check_device(tensor, reference.device(), op, argument);
}

}  // namespace sluice::ops
