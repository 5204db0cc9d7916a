#include "ops/contiguous.h"

#include "autograd/node.h"
#include "kernels/copy.h"
#include "ops/check.h"

namespace sluice::ops {
namespace {

struct Contiguous final : autograd::Node {
  explicit Contiguous(const Tensor& x) : Node("contiguous", {x}) {}

  std::vector<Tensor> backward(std::span<const Tensor> grads) override { return {grads[0]}; }
};

}  // namespace

void copy_elements(const Tensor& into, const Tensor& value) {
  const kernels::CopyArgs args{
      into.raw(),
      value.raw(),
      int64_t(size_of(into.dtype())),
      unordered_loop<2>(into.shape(), {into.strides(), value.strides()})};
  SLUICE_LAUNCH(into.device(), "copy", kernels::copy, args);
}

Tensor contiguous(const Tensor& x) {
  check_defined(x, "contiguous", "x");
  if (x.contiguous()) return x;
  Tensor out = empty_like(x);
  copy_elements(out, x);
  if (autograd::should_record({x})) autograd::record<Contiguous>(out, x);
  return out;
}

}  // namespace sluice::ops
