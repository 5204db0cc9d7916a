#include "ops/rms_norm.h"

#include "autograd/node.h"
#include "engine/context.h"
#include "kernels/rms_norm.h"
#include "ops/require.h"

namespace sluice::ops {
namespace {

// The fields that forward and backward share: rows of a dense tensor.
template <class Args>
Args rows_args(const Tensor& x, const Tensor& weight, RmsNormOptions options) {
  Args args{};
  args.dtype = x.dtype();
  args.batch = 1;
  args.heads = 1;
  args.width = x.size(-1);
  args.tokens = args.width == 0 ? 0 : x.numel() / args.width;
  args.eps = options.eps;
  args.weight_offset = options.zero_centred ? 1.0 : 0.0;
  args.x = x.raw();
  args.x_strides.token = args.width;
  args.weight = weight.defined() ? weight.raw() : nullptr;
  return args;
}

struct RmsNorm final : autograd::Node {
  RmsNorm(
      const Tensor& x,
      const Tensor& weight,
      const Tensor& dense_x,
      const Tensor& dense_weight,
      RmsNormOptions norm_options)
      : Node("rms_norm", {x, weight}), options(norm_options) {
    save({dense_x, dense_weight});
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor& x = saved(0);
    const Tensor& weight = saved(1);
    const Tensor grad_out = to_contiguous(grads[0]);
    const Tensor grad_x = needs(0) ? empty_like(x) : Tensor();
    const Tensor grad_weight = needs(1) ? empty_like(weight) : Tensor();
    auto args = rows_args<kernels::RmsNormBackward>(x, weight, options);
    args.grad_out = grad_out.raw();
    args.grad_out_strides.token = args.width;
    args.grad_x = grad_x.defined() ? grad_x.raw() : nullptr;
    args.grad_x_strides.token = args.width;
    args.grad_weight = grad_weight.defined() ? grad_weight.raw() : nullptr;
    const auto bytes = int64_t(kernels::rms_norm_backward_scratch_bytes(args));
    const Tensor scratch = empty({bytes}, {DType::u8, x.device()});
    args.scratch = scratch.raw();
    SLUICE_LAUNCH(x.device(), "rms_norm", kernels::rms_norm_backward, args);
    return {grad_x, grad_weight};
  }

  RmsNormOptions options;
};

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, RmsNormOptions options) {
  check_floating(x, "rms_norm", "x");
  SLUICE_CHECK(
      x.rank() >= 1, ShapeError, "rms_norm: x must have rank >= 1, got {}", to_string(x.shape()));
  SLUICE_CHECK(options.eps >= 0, ArgumentError, "rms_norm: eps must be >= 0, got {}", options.eps);
  if (weight.defined()) require_like("rms_norm", "weight", weight, {x.size(-1)}, x);
  const Tensor dense_x = to_contiguous(x);
  const Tensor dense_weight = weight.defined() ? to_contiguous(weight) : weight;
  const Tensor out = empty_like(x);
  auto args = rows_args<kernels::RmsNormForward>(dense_x, dense_weight, options);
  args.out = out.raw();
  args.out_strides.token = args.width;
  SLUICE_LAUNCH(x.device(), "rms_norm", kernels::rms_norm_forward, args);
  if (autograd::should_record({x, weight})) {
    autograd::record<RmsNorm>(out, x, weight, dense_x, dense_weight, options);
  }
  return out;
}

}  // namespace sluice::ops
