#include "ops/where.h"

#include "autograd/node.h"
#include "kernels/where.h"
#include "ops/broadcast.h"
#include "ops/check.h"
#include "ops/sum_to.h"

namespace sluice::ops {
namespace {

struct Where final : autograd::Node {
  Where(const Tensor& condition, const Tensor& a, const Tensor& b)
      : Node("where", {a, b}), a_shape(a.shape()), b_shape(b.shape()) {
    save({condition});
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor& grad = grads[0];
    const Tensor zero = zeros({}, {grad.dtype(), grad.device()});
    std::vector<Tensor> out(2);
    if (needs(0)) out[0] = sum_to(where(saved(0), grad, zero), a_shape);
    if (needs(1)) out[1] = sum_to(where(saved(0), zero, grad), b_shape);
    return out;
  }

  Shape a_shape;
  Shape b_shape;
};

}  // namespace

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check_dtype(condition, DType::u8, "where", "condition");
  check_defined(a, "where", "a");
  check_like(b, a, "where", "b");
  check_device(condition, a.device(), "where", "condition");
  const Shape values = broadcast_shapes(a.shape(), b.shape(), "where");
  const Shape shape = broadcast_shapes(condition.shape(), values, "where");
  Tensor out = empty(shape, {a.dtype(), a.device()});
  const kernels::WhereArgs args{
      out.raw(),
      condition.data<uint8_t>(),
      a.raw(),
      b.raw(),
      int64_t(size_of(a.dtype())),
      unordered_loop<4>(
          shape,
          {out.strides(),
           broadcast_strides(condition, shape),
           broadcast_strides(a, shape),
           broadcast_strides(b, shape)})};
  SLUICE_LAUNCH(a.device(), "where", kernels::where, args);
  if (autograd::should_record({a, b})) autograd::record<Where>(out, condition, a, b);
  return out;
}

}  // namespace sluice::ops
