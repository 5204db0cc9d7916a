#include "ops/mix_experts.h"

#include "autograd/node.h"
#include "engine/errors.h"
#include "kernels/mix_experts.h"
#include "ops/check.h"
#include "ops/contiguous.h"

namespace sluice::ops {
namespace {

constexpr const char* kOp = "mix_experts";

std::vector<Tensor> inputs_of(const Tensor& weights, const std::vector<Tensor>& outputs) {
  std::vector<Tensor> inputs = {weights};
  inputs.insert(inputs.end(), outputs.begin(), outputs.end());
  return inputs;
}

struct MixExperts final : autograd::Node {
  MixExperts(const Tensor& weights, const std::vector<Tensor>& outputs)
      : Node(kOp, inputs_of(weights, outputs)), experts_(int(outputs.size())) {
    save({weights});
    // The outputs are read for the gradient of the weights only.
    if (needs(0)) save(outputs);
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor& weights = saved(0);
    const Tensor grad = contiguous(grads[0]);
    std::vector<Tensor> out(size_t(experts_) + 1);
    std::vector<const void*> outputs(size_t(experts_), nullptr);
    std::vector<void*> grad_outputs(size_t(experts_), nullptr);
    if (needs(0)) out[0] = empty_like(weights);
    for (int e = 0; e < experts_; ++e) {
      if (needs(0)) outputs[size_t(e)] = saved(e + 1).raw();
      if (!needs(e + 1)) continue;
      out[size_t(e) + 1] = empty_like(grad);
      grad_outputs[size_t(e)] = out[size_t(e) + 1].raw();
    }
    const int64_t width = grad.size(-1);
    const kernels::MixExpertsGradient args{
        .dtype = grad.dtype(),
        .weights_dtype = weights.dtype(),
        .rows = weights.numel() / experts_,
        .width = width,
        .experts = experts_,
        .weights = weights.raw(),
        .outputs = outputs.data(),
        .grad = grad.raw(),
        .grad_weights = needs(0) ? out[0].raw() : nullptr,
        .grad_outputs = grad_outputs.data()};
    SLUICE_LAUNCH(grad.device(), kOp, kernels::mix_experts_gradient, args);
    return out;
  }

 private:
  int experts_;
};

void check_arguments(const Tensor& weights, const std::vector<Tensor>& outputs) {
  SLUICE_CHECK(
      !outputs.empty(), ArgumentError, "{}: outputs must be one tensor per expert, got none", kOp);
  check_floating(weights, kOp, "weights");
  const Tensor& first = outputs[0];
  check_floating(first, kOp, "outputs[0]");
  SLUICE_CHECK(
      weights.dtype() == first.dtype() ||
          (weights.dtype() == DType::f32 && first.dtype() == DType::bf16),
      DTypeError,
      "{}: weights must be {}{}, got {}",
      kOp,
      name_of(first.dtype()),
      first.dtype() == DType::bf16 ? " or f32" : "",
      name_of(weights.dtype()));
  check_device(weights, first.device(), kOp, "weights");
  SLUICE_CHECK(first.rank() >= 1, ShapeError, "{}: outputs must be (.., C), got a scalar", kOp);
  std::vector<int64_t> dims(first.shape().dims().begin(), first.shape().dims().end());
  dims.back() = int64_t(outputs.size());
  SLUICE_CHECK(
      weights.shape() == Shape(dims),
      ShapeError,
      "{}: weights must be {}, got {}",
      kOp,
      to_string(Shape(dims)),
      to_string(weights.shape()));
  for (const Tensor& output : outputs) {
    check_like(output, first, kOp, "each output");
    SLUICE_CHECK(
        output.shape() == first.shape(),
        ShapeError,
        "{}: each output must be {}, got {}",
        kOp,
        to_string(first.shape()),
        to_string(output.shape()));
  }
}

}  // namespace

Tensor mix_experts(const Tensor& weights, const std::vector<Tensor>& outputs) {
  check_arguments(weights, outputs);
  const Tensor dense_weights = contiguous(weights);
  std::vector<Tensor> dense;
  std::vector<const void*> pointers;
  for (const Tensor& output : outputs) {
    dense.push_back(contiguous(output));
    pointers.push_back(dense.back().raw());
  }
  const int experts = int(outputs.size());
  Tensor out = empty_like(outputs[0]);
  const kernels::MixExperts args{
      .dtype = out.dtype(),
      .weights_dtype = weights.dtype(),
      .rows = weights.numel() / experts,
      .width = out.size(-1),
      .experts = experts,
      .weights = dense_weights.raw(),
      .outputs = pointers.data(),
      .out = out.raw()};
  SLUICE_LAUNCH(out.device(), kOp, kernels::mix_experts, args);
  if (autograd::should_record(inputs_of(dense_weights, dense))) {
    autograd::record<MixExperts>(out, dense_weights, dense);
  }
  return out;
}

}  // namespace sluice::ops
