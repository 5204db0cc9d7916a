#include "ops/softmax.h"

#include "autograd/node.h"
#include "engine/errors.h"
#include "kernels/softmax.h"
#include "ops/check.h"
#include "ops/contiguous.h"

namespace sluice::ops {
namespace {

int64_t rows_of(const Tensor& x) { return x.numel() == 0 ? 0 : x.numel() / x.size(-1); }

struct Softmax final : autograd::Node {
  Softmax(const char* op, const Tensor& x, bool logarithm) : Node(op, {x}), logarithm_(logarithm) {
    save({x});
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor grad = contiguous(grads[0]);
    Tensor grad_x = empty_like(grad);
    const kernels::SoftmaxGradient args{
        .dtype = grad.dtype(),
        .logarithm = logarithm_,
        .rows = rows_of(grad),
        .width = grad.size(-1),
        .x = saved(0).raw(),
        .grad = grad.raw(),
        .grad_x = grad_x.raw()};
    SLUICE_LAUNCH(grad.device(), name(), kernels::softmax_gradient, args);
    return {grad_x};
  }

 private:
  bool logarithm_;
};

Tensor normalize(const char* op, const Tensor& x, bool logarithm) {
  check_floating(x, op, "x");
  SLUICE_CHECK(x.rank() >= 1, ShapeError, "{}: x must have an axis, got a scalar", op);
  const Tensor dense = contiguous(x);
  Tensor out = empty_like(dense);
  const kernels::Softmax args{
      .dtype = x.dtype(),
      .logarithm = logarithm,
      .rows = rows_of(x),
      .width = x.size(-1),
      .x = dense.raw(),
      .out = out.raw()};
  SLUICE_LAUNCH(x.device(), op, kernels::softmax, args);
  if (autograd::should_record({dense})) {
    autograd::record<Softmax>(out, op, dense, logarithm);
  }
  return out;
}

}  // namespace

Tensor softmax(const Tensor& x) { return normalize("softmax", x, false); }

Tensor log_softmax(const Tensor& x) { return normalize("log_softmax", x, true); }

}  // namespace sluice::ops
