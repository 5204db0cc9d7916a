#include "ops/qk_norm.h"

#include "autograd/node.h"
#include "engine/context.h"
#include "kernels/rms_norm.h"
#include "ops/head_layout.h"
#include "ops/require.h"

namespace sluice::ops {
namespace {

// The fields that forward and backward share.
template <class Args>
Args head_args(const Tensor& x, const Tensor& weight, QkNormOptions options) {
  Args args{};
  args.dtype = x.dtype();
  args.batch = x.size(0);
  args.heads = x.size(1);
  args.tokens = x.size(2);
  args.width = x.size(3);
  args.eps = options.eps;
  args.weight_offset = options.zero_centred ? 1.0 : 0.0;
  args.x = x.raw();
  args.x_strides = row_strides(x);
  args.weight = weight.defined() ? weight.raw() : nullptr;
  args.weight_head_stride = weight.defined() && weight.rank() == 2 ? args.width : 0;
  return args;
}

struct QkNorm final : autograd::Node {
  QkNorm(
      std::initializer_list<Tensor> inputs,
      const Tensor& x,
      const Tensor& weight,
      QkNormOptions norm_options)
      : Node("qk_norm", inputs), options(norm_options) {
    save({x, weight});
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor& x = saved(0);
    const Tensor& weight = saved(1);
    const Tensor grad_out = with_dense_rows(grads[0]);
    const Tensor grad_x = needs(0) ? empty_heads(x.shape(), {x.dtype(), x.device()}) : Tensor();
    const Tensor grad_weight = needs(1) ? empty_like(weight) : Tensor();
    auto args = head_args<kernels::RmsNormBackward>(x, weight, options);
    args.grad_out = grad_out.raw();
    args.grad_out_strides = row_strides(grad_out);
    if (grad_x.defined()) {
      args.grad_x = grad_x.raw();
      args.grad_x_strides = row_strides(grad_x);
    }
    args.grad_weight = grad_weight.defined() ? grad_weight.raw() : nullptr;
    const auto bytes = int64_t(kernels::rms_norm_backward_scratch_bytes(args));
    const Tensor scratch = empty({bytes}, {DType::u8, x.device()});
    args.scratch = scratch.raw();
    SLUICE_LAUNCH(x.device(), "qk_norm", kernels::rms_norm_backward, args);
    return {grad_x, grad_weight};
  }

  QkNormOptions options;
};

}  // namespace

Tensor qk_norm(const Tensor& x, const Tensor& weight, QkNormOptions options) {
  check_floating(x, "qk_norm", "x");
  SLUICE_CHECK(
      x.rank() == 4,
      ShapeError,
      "qk_norm: x must have rank 4 (B, H, T, D), got {}",
      to_string(x.shape()));
  SLUICE_CHECK(options.eps >= 0, ArgumentError, "qk_norm: eps must be >= 0, got {}", options.eps);
  if (weight.defined()) {
    const Shape per_head{x.size(1), x.size(3)};
    require_like("qk_norm", "weight", weight, weight.rank() == 1 ? Shape{x.size(3)} : per_head, x);
  }
  const Tensor rows = with_dense_rows(x);
  const Tensor dense_weight = weight.defined() ? to_contiguous(weight) : weight;
  const Tensor out = empty_heads(x.shape(), {x.dtype(), x.device()});
  auto args = head_args<kernels::RmsNormForward>(rows, dense_weight, options);
  args.out = out.raw();
  args.out_strides = row_strides(out);
  SLUICE_LAUNCH(x.device(), "qk_norm", kernels::rms_norm_forward, args);
  if (autograd::should_record({x, weight})) {
    autograd::record<QkNorm>(
        out, std::initializer_list<Tensor>{x, weight}, rows, dense_weight, options);
  }
  return out;
}

}  // namespace sluice::ops
