#include "ops/straight_through.h"

#include <cmath>

#include "autograd/node.h"
#include "engine/errors.h"
#include "ops/binary.h"
#include "ops/cast.h"
#include "ops/reduce.h"

namespace sluice::ops {
namespace {

struct StraightThrough final : autograd::Node {
  StraightThrough(
      const Tensor& rows,
      const Tensor& weight,
      const Tensor& baseline,
      const StraightThroughOptions& options)
      : Node("straight_through", {rows, weight}), baseline_(baseline.detach()), options_(options) {
    save({rows, weight});
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor& grad_out = grads[0];
    Tensor grad_weight;
    if (needs(1)) {
      const Tensor& weight = saved(1);
      const Tensor product = sum(mul(grad_out, saved(0)), {-1});
      const Tensor reward = cast(product, weight.dtype());
      float* baseline = baseline_.data<float>();
      grad_weight = div(sub(reward, double(*baseline)), weight);
      const Tensor average = cast(mean(reward), DType::f32);
      const float moved =
          *baseline + float(options_.baseline_rate) * (average.item<float>() - *baseline);
      // A running mean never recovers from an infinity, nor do the steps after it.
      if (std::isfinite(moved)) *baseline = moved;
    }
    return {grad_out, grad_weight};
  }

  Tensor baseline_;
  StraightThroughOptions options_;
};

}  // namespace

Tensor straight_through(
    const Tensor& rows,
    const Tensor& weight,
    const Tensor& baseline,
    const StraightThroughOptions& options) {
  SLUICE_CHECK(
      rows.rank() == 3 && weight.shape() == Shape({rows.size(0), rows.size(1)}),
      ShapeError,
      "straight_through: rows and weight must be (B, T, C) and (B, T), got {} and {}",
      to_string(rows.shape()),
      to_string(weight.shape()));
  SLUICE_CHECK(
      weight.dtype() == DType::f32 || weight.dtype() == DType::f64,
      DTypeError,
      "straight_through: weight must be f32 or f64, got {}",
      name_of(weight.dtype()));
  SLUICE_CHECK(
      baseline.numel() == 1 && baseline.dtype() == DType::f32,
      ShapeError,
      "straight_through: baseline must be one f32, got {}",
      describe(baseline));
  Tensor out = rows.detach();
  if (autograd::should_record({rows, weight})) {
    autograd::record<StraightThrough>(out, rows, weight, baseline, options);
  }
  return out;
}

}  // namespace sluice::ops
