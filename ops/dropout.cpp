#include "ops/dropout.h"

#include <cmath>

#include "autograd/node.h"
#include "engine/errors.h"
#include "kernels/dropout.h"
#include "ops/check.h"
#include "ops/contiguous.h"

namespace sluice::ops {
namespace {

Tensor apply(const Tensor& x, const DropoutOptions& options) {
  Tensor out = empty_like(x);
  const kernels::Dropout args{
      .dtype = x.dtype(),
      .count = x.numel(),
      .x = x.raw(),
      .out = out.raw(),
      // unit_float(word) >= p in integers: (word >> 9) + 0.5 >= p * 2^23.
      .threshold = uint32_t(std::max(0.0, std::ceil(options.p * 0x1p23 - 0.5))),
      .scale = 1.0 / (1.0 - options.p),
      .key = options.key};
  SLUICE_LAUNCH(x.device(), "dropout", kernels::dropout, args);
  return out;
}

struct Dropout final : autograd::Node {
  Dropout(const Tensor& x, const DropoutOptions& options)
      : Node("dropout", {x}), options_(options) {}

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    return {apply(contiguous(grads[0]), options_)};
  }

 private:
  DropoutOptions options_;
};

}  // namespace

Tensor dropout(const Tensor& x, const DropoutOptions& options) {
  check_floating(x, "dropout", "x");
  SLUICE_CHECK(
      options.p >= 0 && options.p < 1,
      ArgumentError,
      "dropout: p must be in [0, 1), got {}",
      options.p);
  if (options.p == 0) return x;
  const Tensor dense = contiguous(x);
  Tensor out = apply(dense, options);
  if (autograd::should_record({dense})) autograd::record<Dropout>(out, dense, options);
  return out;
}

}  // namespace sluice::ops
