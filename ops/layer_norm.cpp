#include "ops/layer_norm.h"

#include "autograd/node.h"
#include "engine/context.h"
#include "kernels/layer_norm.h"
#include "ops/require.h"

namespace sluice::ops {
namespace {

void* raw_or_null(const Tensor& tensor) { return tensor.defined() ? tensor.raw() : nullptr; }

struct LayerNorm final : autograd::Node {
  LayerNorm(
      std::initializer_list<Tensor> inputs,
      const Tensor& x,
      const Tensor& weight,
      const Tensor& statistics)
      : Node("layer_norm", inputs) {
    save({x, weight, statistics});
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor& x = saved(0);
    const Tensor& weight = saved(1);
    const int64_t width = x.size(-1);
    const TensorOptions like{x.dtype(), x.device()};
    const Tensor grad_out = to_contiguous(grads[0]);
    const Tensor grad_x = needs(0) ? empty_like(x) : Tensor();
    const Tensor grad_weight = needs(1) ? empty({width}, like) : Tensor();
    const Tensor grad_bias = needs(2) ? empty({width}, like) : Tensor();
    kernels::LayerNormBackward args{
        .dtype = x.dtype(),
        .rows = width == 0 ? 0 : x.numel() / width,
        .width = width,
        .x = x.raw(),
        .weight = raw_or_null(weight),
        .statistics = saved(2).raw(),
        .grad_out = grad_out.raw(),
        .grad_x = raw_or_null(grad_x),
        .grad_weight = raw_or_null(grad_weight),
        .grad_bias = raw_or_null(grad_bias),
        .scratch = nullptr};
    const auto bytes = int64_t(kernels::layer_norm_backward_scratch_bytes(args));
    const Tensor scratch = empty({bytes}, {DType::u8, x.device()});
    args.scratch = scratch.raw();
    SLUICE_LAUNCH(x.device(), "layer_norm", kernels::layer_norm_backward, args);
    return {grad_x, grad_weight, grad_bias};
  }
};

}  // namespace

Tensor layer_norm(
    const Tensor& x, const Tensor& weight, const Tensor& bias, LayerNormOptions options) {
  check_floating(x, "layer_norm", "x");
  SLUICE_CHECK(
      x.rank() >= 1, ShapeError, "layer_norm: x must have rank >= 1, got {}", to_string(x.shape()));
  SLUICE_CHECK(
      options.eps >= 0, ArgumentError, "layer_norm: eps must be >= 0, got {}", options.eps);
  const int64_t width = x.size(-1);
  if (weight.defined()) require_like("layer_norm", "weight", weight, {width}, x);
  if (bias.defined()) require_like("layer_norm", "bias", bias, {width}, x);

  const Tensor dense_x = to_contiguous(x);
  const Tensor dense_weight = weight.defined() ? to_contiguous(weight) : weight;
  const Tensor dense_bias = bias.defined() ? to_contiguous(bias) : bias;
  const Tensor out = empty_like(x);
  const int64_t rows = width == 0 ? 0 : x.numel() / width;
  const DType sums = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Tensor statistics = empty({rows, 2}, {sums, x.device()});
  const kernels::LayerNormForward args{
      .dtype = x.dtype(),
      .rows = rows,
      .width = width,
      .eps = options.eps,
      .x = dense_x.raw(),
      .weight = raw_or_null(dense_weight),
      .bias = raw_or_null(dense_bias),
      .out = out.raw(),
      .statistics = statistics.raw()};
  SLUICE_LAUNCH(x.device(), "layer_norm", kernels::layer_norm_forward, args);
  if (autograd::should_record({x, weight, bias})) {
    autograd::record<LayerNorm>(
        out, std::initializer_list<Tensor>{x, weight, bias}, dense_x, dense_weight, statistics);
  }
  return out;
}

}  // namespace sluice::ops
