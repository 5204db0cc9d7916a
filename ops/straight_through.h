// The gradient path of a drawn route.
#pragma once

#include "engine/tensor.h"

namespace sluice::ops {

/// The output of a drawn expert, with a gradient to the probability it was drawn with.
///
///   out[b,t,:] = rows[b,t,:]                      (the value of the one expert that ran)
///   grad_rows  = grad_out
///   grad_weight[b,t] = (<grad_out[b,t,:], rows[b,t,:]> - baseline) / weight[b,t]
///
/// This is rows * (weight / stop_gradient(weight)) with a baseline. Averaged over draws with
/// probability `weight` it is the gradient of the soft mixture at the drawn output: exact where the
/// loss is linear in the output. The baseline does not change that average, because probabilities
/// add up to a constant; it lowers the variance. Each backward moves it towards the mean of
/// <grad_out, rows>: baseline += rate * (mean - baseline), unless that is not a finite number.
///
/// Shapes  rows: (B, T, C), weight: (B, T) > 0, baseline: (1), f32, state updated in place
/// DTypes  f32, f64, bf16 rows; weight f32 or f64
/// Grads   rows, weight
/// Cost    forward nothing, backward 2*B*T*C flops
/// Throws  ShapeError, DTypeError
/// Source  Bengio, Leonard, Courville 2013, arXiv:1308.3432, section 3; Williams 1992 (baseline)
struct StraightThroughOptions {
  double baseline_rate = 0.01;
};
Tensor straight_through(
    const Tensor& rows,
    const Tensor& weight,
    const Tensor& baseline,
    const StraightThroughOptions& options = {});

}  // namespace sluice::ops
