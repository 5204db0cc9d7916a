#include "ops/compare.h"

#include "kernels/compare.h"
#include "ops/broadcast.h"
#include "ops/cast.h"
#include "ops/check.h"

namespace sluice::ops {
namespace {

using kernels::Comparison;

Tensor compare(const char* op, Comparison comparison, const Tensor& a, const Tensor& b) {
  check_defined(a, op, "a");
  check_like(b, a, op, "b");
  const Shape shape = broadcast_shapes(a.shape(), b.shape(), op);
  Tensor out = empty(shape, {DType::u8, a.device()});
  const kernels::CompareArgs args{
      comparison,
      a.dtype(),
      out.data<uint8_t>(),
      a.raw(),
      b.raw(),
      unordered_loop<3>(
          shape, {out.strides(), broadcast_strides(a, shape), broadcast_strides(b, shape)})};
  SLUICE_LAUNCH(a.device(), op, kernels::compare, args);
  return out;
}

// Both sides of a comparison with a number: integers meet it in f64, where 2 < 2.5 holds.
struct Sides {
  Tensor tensor;
  Tensor number;

  Sides(const char* op, const Tensor& a, double b) {
    check_defined(a, op, "a");
    tensor = is_floating(a.dtype()) ? a : cast(a, DType::f64);
    number = full({}, b, {tensor.dtype(), a.device()});
  }
};

}  // namespace

Tensor equal(const Tensor& a, const Tensor& b) { return compare("equal", Comparison::equal, a, b); }

Tensor equal(const Tensor& a, double b) {
  const Sides sides("equal", a, b);
  return equal(sides.tensor, sides.number);
}

Tensor less(const Tensor& a, const Tensor& b) { return compare("less", Comparison::less, a, b); }

Tensor less(const Tensor& a, double b) {
  const Sides sides("less", a, b);
  return less(sides.tensor, sides.number);
}

Tensor less_equal(const Tensor& a, const Tensor& b) {
  return compare("less_equal", Comparison::less_equal, a, b);
}

Tensor less_equal(const Tensor& a, double b) {
  const Sides sides("less_equal", a, b);
  return less_equal(sides.tensor, sides.number);
}

Tensor greater(const Tensor& a, const Tensor& b) {
  return compare("greater", Comparison::less, b, a);
}

Tensor greater(const Tensor& a, double b) {
  const Sides sides("greater", a, b);
  return greater(sides.tensor, sides.number);
}

Tensor greater_equal(const Tensor& a, const Tensor& b) {
  return compare("greater_equal", Comparison::less_equal, b, a);
}

Tensor greater_equal(const Tensor& a, double b) {
  const Sides sides("greater_equal", a, b);
  return greater_equal(sides.tensor, sides.number);
}

}  // namespace sluice::ops
