#include "ops/linear.h"

#include "autograd/node.h"
#include "kernels/bias_activation_backward.h"
#include "ops/check.h"
#include "ops/gemm_operand.h"
#include "ops/require.h"

namespace sluice::ops {
namespace {

constexpr const char* kOp = "linear";

// A (rows, columns) matrix of equally spaced rows, as it is or transposed.
kernels::GemmMatrix matrix_of(const Rows& rows, bool transposed) {
  return {rows.tensor.raw(), rows.stride, 0, transposed};
}

kernels::GemmArgs gemm_into(const Tensor& out, int64_t m, int64_t n, int64_t k) {
  kernels::GemmArgs args;
  args.dtype = out.dtype();
  args.m = m;
  args.n = n;
  args.k = k;
  args.c = out.raw();
  args.c_row_stride = n;
  return args;
}

bool saves_result(Activation activation) { return activation == Activation::relu; }

struct Linear final : autograd::Node {
  Linear(std::initializer_list<Tensor> inputs, const Tensor& pre_activation, Activation activation)
      : Node(kOp, inputs), activation_(activation) {
    const Tensor& x = inputs.begin()[0];
    const Tensor& weight = inputs.begin()[1];
    shape_ = x.shape();
    features_ = weight.size(0);
    save({needs(1) ? x : Tensor(), needs(0) ? weight : Tensor(), pre_activation});
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const TensorOptions like{grads[0].dtype(), grads[0].device()};
    const int64_t width = shape_[shape_.rank() - 1];
    const auto [grad_pre, grad_bias] = through_epilogue(as_rows(grads[0]), like);
    Tensor grad_x, grad_weight;
    if (needs(0)) {
      grad_x = empty(shape_, like);
      kernels::GemmArgs args = gemm_into(grad_x, grad_pre.rows, width, features_);
      const GemmOperand weight = gemm_operand(saved(1), false);
      args.a = matrix_of(grad_pre, false);
      args.b = weight.matrix;
      launch_gemm(kOp, like.device, args);
    }
    if (needs(1)) {
      grad_weight = empty({features_, width}, like);
      kernels::GemmArgs args = gemm_into(grad_weight, features_, width, grad_pre.rows);
      const Rows x = as_rows(saved(0));
      args.a = matrix_of(grad_pre, true);
      args.b = matrix_of(x, false);
      launch_gemm(kOp, like.device, args);
    }
    return {grad_x, grad_weight, grad_bias};
  }

 private:
  // Gradients of the values before the activation and of the bias.
  std::pair<Rows, Tensor> through_epilogue(const Rows& grad_out, TensorOptions like) {
    const bool has_activation = activation_ != Activation::none;
    const Tensor grad_bias = needs(2) ? empty({features_}, like) : Tensor();
    const Tensor grad_pre = has_activation ? empty({grad_out.rows, features_}, like) : Tensor();
    if (grad_bias.defined() || has_activation) {
      kernels::BiasActivationBackward args{
          .dtype = like.dtype,
          .rows = grad_out.rows,
          .columns = features_,
          .activation = activation_,
          .grad_out = grad_out.tensor.raw(),
          .grad_out_row_stride = grad_out.stride,
          .pre_activation = has_activation ? saved(2).raw() : nullptr,
          .grad_pre = has_activation ? grad_pre.raw() : nullptr,
          .grad_bias = grad_bias.defined() ? grad_bias.raw() : nullptr,
          .scratch = nullptr};
      const auto bytes = int64_t(kernels::bias_activation_backward_scratch_bytes(args));
      const Tensor scratch = empty({bytes}, {DType::u8, like.device});
      args.scratch = scratch.raw();
      SLUICE_LAUNCH(like.device, kOp, kernels::bias_activation_backward, args);
    }
    return {
        has_activation ? Rows{grad_pre, grad_out.rows, features_, features_} : grad_out, grad_bias};
  }

  Activation activation_;
  Shape shape_;
  int64_t features_;
};

void check(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_floating(x, kOp, "x");
  check_like(weight, x, kOp, "weight");
  SLUICE_CHECK(
      x.rank() >= 1, ShapeError, "linear: x must have rank >= 1, got {}", to_string(x.shape()));
  SLUICE_CHECK(
      weight.rank() == 2 && weight.size(1) == x.size(-1),
      ShapeError,
      "linear: weight must have shape (N, {}), got {}",
      x.size(-1),
      to_string(weight.shape()));
  if (bias.defined()) require_like(kOp, "bias", bias, {weight.size(0)}, x);
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, LinearOptions options) {
  check(x, weight, bias);
  const int64_t features = weight.size(0);
  std::vector<int64_t> dims(x.shape().dims().begin(), x.shape().dims().end());
  dims.back() = features;
  const Tensor out = empty(Shape(dims), {x.dtype(), x.device()});
  const bool record = autograd::should_record({x, weight, bias});
  const bool needs_pre = record && options.activation != Activation::none;
  const Tensor pre = !needs_pre                         ? Tensor()
                     : saves_result(options.activation) ? out
                                                        : empty_like(out);

  const Rows rows = as_rows(x);
  const GemmOperand matrix = gemm_operand(weight, true);
  const Tensor dense_bias = bias.defined() ? to_contiguous(bias) : bias;
  kernels::GemmArgs args = gemm_into(out, rows.rows, features, rows.columns);
  args.a = matrix_of(rows, false);
  args.b = matrix.matrix;
  args.bias = bias.defined() ? dense_bias.raw() : nullptr;
  args.activation = options.activation;
  args.pre_activation = needs_pre && !saves_result(options.activation) ? pre.raw() : nullptr;
  launch_gemm(kOp, x.device(), args);
  if (record) {
    autograd::record<Linear>(
        out, std::initializer_list<Tensor>{x, weight, bias}, pre, options.activation);
  }
  return out;
}

}  // namespace sluice::ops
