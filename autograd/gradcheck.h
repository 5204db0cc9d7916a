// Comparing analytic gradients with central differences, in f64. Usable by anyone who writes an op.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/tensor.h"

namespace sluice::autograd {

struct GradcheckOptions {
  double tolerance = 1e-6;       ///< |analytic - numeric| <= tolerance * max(1, |numeric|)
  double step = 6.0554544523933429e-6;  ///< cbrt(eps of f64); the step at x is step * max(1, |x|)
  int64_t full_jacobian = 4096;  ///< up to this many input entries each is checked, else projections
  int projections = 4;           ///< random directions when the Jacobian is too large
  uint64_t seed = 1;             ///< of the random output weights and directions
};

struct GradcheckResult {
  bool ok = true;
  double worst_error = 0;  ///< largest |analytic - numeric| / max(1, |numeric|)
  std::string message;     ///< where the worst entry is, both values; empty when ok
};

/// Checks d(function)/d(inputs) for f64 inputs: `function` maps them to outputs (one or several
/// floating tensors), is deterministic, and is differentiable at the given point. The outputs are
/// contracted with fixed random weights, so one backward gives each row of the weighted Jacobian.
/// Throws DTypeError unless all inputs are f64.
using GradcheckFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)>;
GradcheckResult gradcheck(
    const GradcheckFunction& function,
    const std::vector<Tensor>& inputs,
    GradcheckOptions options = {});

}  // namespace sluice::autograd
