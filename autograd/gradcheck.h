// Comparing analytic gradients with central differences, in f64. Usable by anyone who writes an op.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/tensor.h"

namespace sluice::autograd {

struct GradcheckOptions {
  double tolerance = 1e-6;              ///< |analytic - numeric| <= tolerance * max(1, |numeric|)
  double step = 6.0554544523933429e-6;  ///< cbrt(eps of f64); the step at x is step * max(1, |x|)
  int64_t full_jacobian = 4096;  ///< up to this many entries (inputs x outputs) each is checked
  int64_t max_inputs = 4096;     ///< above this many input entries, random directions are checked
  int projections = 4;           ///< how many
  uint64_t seed = 1;             ///< of the random output weights and directions
};

struct GradcheckResult {
  bool ok = true;
  double worst_error = 0;  ///< largest |analytic - numeric| / max(1, |numeric|)
  std::string message;     ///< where the worst entry is, both values; empty when ok
};

using GradcheckFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)>;

/// Compares d(function)/d(inputs) with central differences at the given point.
///
/// A small Jacobian is compared entry by entry, from one backward per output entry. A larger one is
/// contracted with random output weights, which leaves one number for each input entry; and when
/// there are too many of those, with random input directions as well.
/// `function` maps f64 inputs to one or several f64 outputs, is deterministic, and is
/// differentiable at the point. Inputs of other dtypes belong into its capture.
///
///   const auto result = gradcheck([&](auto& in) { return std::vector{mul(in[0], in[1])}; }, {a,
///   b}); if (!result.ok) std::puts(result.message.c_str());
///
/// Cost    two evaluations per input entry (or direction); up to full_jacobian backward passes
/// Throws  DTypeError unless inputs and outputs are f64
GradcheckResult gradcheck(
    const GradcheckFunction& function,
    const std::vector<Tensor>& inputs,
    GradcheckOptions options = {});

}  // namespace sluice::autograd
