#include "ops/inplace.h"

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "kernels/binary.h"
#include "kernels/cast.h"
#include "kernels/unary.h"
#include "ops/broadcast.h"
#include "ops/check.h"
#include "ops/contiguous.h"

namespace sluice::ops {
namespace {

void check_target(const Tensor& target, const char* op) {
  check_defined(target, op, "target");
  SLUICE_CHECK(
      !autograd::recording() || !autograd::requires_grad(target),
      GradError,
      "{}: target must not take part in a graph while recording, got {}",
      op,
      describe(target));
  for (int axis = 0; axis < target.rank(); ++axis) {
    SLUICE_CHECK(
        target.strides()[size_t(axis)] != 0 || target.shape()[axis] <= 1,
        ArgumentError,
        "{}: target must hold each element once, got stride 0 along axis {}",
        op,
        axis);
  }
}

// Strides of `value` read in the shape of `target`.
Strides value_strides(const Tensor& target, const Tensor& value, const char* op) {
  check_device(value, target.device(), op, "value");
  SLUICE_CHECK(
      broadcast_shapes(target.shape(), value.shape(), op) == target.shape(),
      ShapeError,
      "{}: value must broadcast to {}, got {}",
      op,
      to_string(target.shape()),
      to_string(value.shape()));
  return broadcast_strides(value, target.shape());
}

void combine(
    const char* op, kernels::BinaryFunction function, const Tensor& target, const Tensor& value) {
  check_target(target, op);
  check_floating(target, op, "target");
  check_dtype(value, target.dtype(), op, "value");
  const Strides strides = value_strides(target, value, op);
  const kernels::BinaryArgs args{
      function,
      target.dtype(),
      target.raw(),
      target.raw(),
      value.raw(),
      unordered_loop<3>(target.shape(), {target.strides(), target.strides(), strides})};
  SLUICE_LAUNCH(target.device(), op, kernels::binary, args);
  target.storage()->bump_version();
}

// target = alpha * target + beta.
void transform(const char* op, const Tensor& target, double alpha, double beta) {
  check_target(target, op);
  check_floating(target, op, "target");
  const kernels::UnaryArgs args{
      kernels::UnaryFunction::affine,
      target.dtype(),
      target.raw(),
      target.raw(),
      alpha,
      beta,
      unordered_loop<2>(target.shape(), {target.strides(), target.strides()})};
  SLUICE_LAUNCH(target.device(), op, kernels::unary, args);
  target.storage()->bump_version();
}

}  // namespace

void copy_(const Tensor& target, const Tensor& value) {
  check_target(target, "copy_");
  check_defined(value, "copy_", "value");
  const Strides strides = value_strides(target, value, "copy_");
  if (value.dtype() == target.dtype()) {
    copy_elements(target, value.alias(target.shape(), strides, value.offset()));
  } else {
    const kernels::CastArgs args{
        target.raw(),
        value.raw(),
        target.dtype(),
        value.dtype(),
        unordered_loop<2>(target.shape(), {target.strides(), strides})};
    SLUICE_LAUNCH(target.device(), "copy_", kernels::cast, args);
  }
  target.storage()->bump_version();
}

void fill_(const Tensor& target, double value) {
  check_target(target, "fill_");
  fill(target, value);
}

void add_(const Tensor& target, const Tensor& value) {
  combine("add_", kernels::BinaryFunction::add, target, value);
}

void add_(const Tensor& target, double value) { transform("add_", target, 1.0, value); }

void mul_(const Tensor& target, const Tensor& value) {
  combine("mul_", kernels::BinaryFunction::mul, target, value);
}

void mul_(const Tensor& target, double value) { transform("mul_", target, value, 0.0); }

}  // namespace sluice::ops
