#include "ops/clip_grad_norm.h"

#include <cmath>
#include <vector>

#include "engine/context.h"
#include "kernels/grad_norm.h"
#include "kernels/tensor_list.h"
#include "ops/check.h"

namespace sluice::ops {

double grad_norm(std::span<const Tensor> grads) {
  std::vector<kernels::GradNormTensor> tensors;
  std::vector<Tensor> dense;
  int64_t chunks = 0;
  for (const Tensor& grad : grads) {
    if (!grad.defined()) continue;
    check_floating(grad, "grad_norm", "grads");
    dense.push_back(to_contiguous(grad));
    check_device(grad, dense[0].device(), "grad_norm", "grads");
    if (grad.numel() == 0) continue;
    tensors.push_back({grad.dtype(), grad.numel(), chunks, dense.back().raw()});
    chunks += kernels::list_chunks(grad.numel());
  }
  if (tensors.empty()) return 0;
  const TensorOptions options{DType::f64, dense[0].device()};
  const Tensor partials = empty({chunks}, options);
  const Tensor norm = empty({}, options);
  const kernels::GradNormArgs args{
      tensors.data(),
      int64_t(tensors.size()),
      chunks,
      partials.data<double>(),
      norm.data<double>()};
  SLUICE_LAUNCH(options.device, "grad_norm", kernels::grad_norm, args);
  return norm.item<double>();
}

double clip_scale(double norm, double max_norm) {
  SLUICE_CHECK(max_norm > 0, ArgumentError, "clip_scale: max_norm must be > 0, got {}", max_norm);
  SLUICE_CHECK(
      std::isfinite(norm) && norm >= 0,
      ArgumentError,
      "clip_scale: norm must be finite and >= 0, got {}",
      norm);
  return norm > max_norm ? max_norm / norm : 1.0;
}

}  // namespace sluice::ops
