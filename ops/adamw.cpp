#include "ops/adamw.h"

#include <cmath>
#include <vector>

#include "engine/context.h"
#include "kernels/adamw.h"
#include "kernels/tensor_list.h"
#include "ops/require.h"

namespace sluice::ops {
namespace {

constexpr const char* kOp = "adamw_step";

void check(const AdamWOptions& options) {
  const auto check_range = [](bool in_range, const char* name, const char* range, double value) {
    SLUICE_CHECK(in_range, ArgumentError, "adamw_step: {} must be {}, got {}", name, range, value);
  };
  check_range(options.lr >= 0, "lr", ">= 0", options.lr);
  check_range(options.beta1 >= 0 && options.beta1 < 1, "beta1", "in [0, 1)", options.beta1);
  check_range(options.beta2 >= 0 && options.beta2 < 1, "beta2", "in [0, 1)", options.beta2);
  check_range(options.eps > 0, "eps", "> 0", options.eps);
  check_range(options.weight_decay >= 0, "weight_decay", ">= 0", options.weight_decay);
  check_range(options.step >= 1, "step", ">= 1", double(options.step));
  check_range(std::isfinite(options.grad_scale), "grad_scale", "finite", options.grad_scale);
}

void check_state(const char* name, const Tensor& tensor, const Tensor& param, DType dtype) {
  check_dtype(tensor, dtype, kOp, name);
  require_shape(kOp, name, tensor, param.shape());
  check_device(tensor, param.device(), kOp, name);
  SLUICE_CHECK(
      tensor.contiguous(), ArgumentError, "adamw_step: {} must be contiguous, got a view", name);
}

void check(const AdamWParam& item, Device device) {
  check_floating(item.param, kOp, "param");
  check_device(item.param, device, kOp, "param");
  const DType moments = item.param.dtype() == DType::f64 ? DType::f64 : DType::f32;
  check_state("param", item.param, item.param, item.param.dtype());
  check_state("m", item.m, item.param, moments);
  check_state("v", item.v, item.param, moments);
  if (item.grad.defined()) {
    require_like(kOp, "grad", item.grad, item.param.shape(), item.param);
  }
}

}  // namespace

void adamw_step(std::span<const AdamWParam> params, AdamWOptions options) {
  check(options);
  // All checks come first: a refused step has changed nothing.
  for (const AdamWParam& item : params) {
    check_defined(params[0].param, kOp, "param");
    check(item, params[0].param.device());
  }
  std::vector<kernels::AdamWTensor> tensors;
  std::vector<Tensor> grads;
  int64_t chunks = 0;
  for (const AdamWParam& item : params) {
    if (!item.grad.defined() || item.param.numel() == 0) continue;
    grads.push_back(to_contiguous(item.grad));
    tensors.push_back(
        {item.param.dtype(),
         item.param.numel(),
         chunks,
         item.param.raw(),
         grads.back().raw(),
         item.m.raw(),
         item.v.raw()});
    chunks += kernels::list_chunks(item.param.numel());
  }
  if (tensors.empty()) return;
  const auto step = double(options.step);
  const kernels::AdamWArgs args{
      .tensors = tensors.data(),
      .size = int64_t(tensors.size()),
      .chunks = chunks,
      .grad_scale = options.grad_scale,
      .beta1 = options.beta1,
      .beta2 = options.beta2,
      .eps = options.eps,
      .decay = 1 - options.lr * options.weight_decay,
      .step_size = options.lr / (1 - std::pow(options.beta1, step)),
      .v_scale = 1 / std::sqrt(1 - std::pow(options.beta2, step))};
  SLUICE_LAUNCH(params[0].param.device(), kOp, kernels::adamw, args);
  for (const AdamWParam& item : params) {
    if (!item.grad.defined()) continue;
    for (const Tensor& written : {item.param, item.m, item.v}) written.storage()->bump_version();
  }
}

}  // namespace sluice::ops
