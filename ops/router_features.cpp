#include "ops/router_features.h"

#include <cmath>

#include "autograd/node.h"
#include "engine/context.h"
#include "kernels/router_features.h"
#include "ops/require.h"
#include "ops/view.h"

namespace sluice::ops {
namespace {

struct RouterFeatures final : autograd::Node {
  explicit RouterFeatures(const Tensor& normed)
      : Node("router_features", {normed}), width(normed.size(-1)) {}

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    return {slice(grads[0], -1, 0, width)};
  }

  int64_t width;
};

}  // namespace

Tensor router_features(
    const Tensor& residual, const Tensor& normed, RouterFeaturesOptions options) {
  check_floating(normed, "router_features", "normed");
  SLUICE_CHECK(
      normed.rank() == 3,
      ShapeError,
      "router_features: normed must be (B, T, C), got {}",
      to_string(normed.shape()));
  require_like("router_features", "residual", residual, normed.shape(), normed);
  SLUICE_CHECK(
      options.offset >= 0,
      ArgumentError,
      "router_features: offset must be >= 0, got {}",
      options.offset);
  SLUICE_CHECK(
      options.context >= 1,
      ArgumentError,
      "router_features: context must be >= 1, got {}",
      options.context);
  const Tensor dense_residual = to_contiguous(residual.detach());
  const Tensor dense_normed = to_contiguous(normed);
  kernels::RouterFeatures args{};
  args.dtype = normed.dtype();
  args.batch = normed.size(0);
  args.tokens = normed.size(1);
  args.width = normed.size(2);
  args.offset = options.offset;
  args.log_context = std::log(1.0 + double(options.context));
  const Tensor out =
      empty({args.batch, args.tokens, args.width + 2}, {args.dtype, normed.device()});
  args.residual = dense_residual.raw();
  args.normed = dense_normed.raw();
  args.out = out.raw();
  SLUICE_LAUNCH(normed.device(), "router_features", kernels::router_features, args);
  if (autograd::should_record({normed})) autograd::record<RouterFeatures>(out, normed);
  return out;
}

}  // namespace sluice::ops
