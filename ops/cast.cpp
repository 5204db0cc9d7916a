#include "ops/cast.h"

#include "autograd/node.h"
#include "kernels/cast.h"
#include "ops/check.h"

namespace sluice::ops {
namespace {

struct Cast final : autograd::Node {
  explicit Cast(const Tensor& x) : Node("cast", {x}), dtype(x.dtype()) {}

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    return {cast(grads[0], dtype)};
  }

  DType dtype;
};

}  // namespace

Tensor cast(const Tensor& x, DType dtype) {
  check_defined(x, "cast", "x");
  if (x.dtype() == dtype) return x;
  Tensor out = empty(x.shape(), {dtype, x.device()});
  const kernels::CastArgs args{
      out.raw(),
      x.raw(),
      dtype,
      x.dtype(),
      unordered_loop<2>(x.shape(), {out.strides(), x.strides()})};
  SLUICE_LAUNCH(x.device(), "cast", kernels::cast, args);
  if (is_floating(dtype) && autograd::should_record({x})) autograd::record<Cast>(out, x);
  return out;
}

}  // namespace sluice::ops
