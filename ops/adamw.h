// The AdamW optimiser's update, for all parameters at once.
#pragma once

#include <cstdint>
#include <span>

#include "engine/tensor.h"

namespace sluice::ops {

/// A parameter, its gradient and its moments, all of one shape. m and v start as zeros.
struct AdamWParam {
  Tensor param;
  Tensor grad;  ///< undefined: the parameter took no part in this step and is left alone
  Tensor m;
  Tensor v;
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  int64_t step = 1;       ///< number of this step, the first is 1
  double grad_scale = 1;  ///< multiplies gradients first: clipping, averaging of accumulated ones
};

/// AdamW: in place, in one parallel region for all parameters, recorded in no graph.
///
///   g = grad_scale * grad,  m = beta1*m + (1-beta1)*g,  v = beta2*v + (1-beta2)*g^2
///   param = param - lr * (mh / (sqrt(vh) + eps) + weight_decay * param),
///   mh = m / (1 - beta1^step),  vh = v / (1 - beta2^step)
///
/// `step` counts the calls, not those in which a parameter had a gradient: one whose gradient is
/// first defined at a large step has corrections of about 1, and moves by about
/// lr * (1-beta1) / sqrt(1-beta2) per entry in that step instead of lr.
///
/// Shapes  any, equal within one AdamWParam; param, m and v contiguous
/// DTypes  param f32, f64, bf16; grad the same; m and v f32, for f64 f64
/// Cost    about 14 flops and, in f32, 28 bytes of traffic per parameter
/// Throws  ShapeError, DTypeError, DeviceError, ArgumentError (option out of range, param, m or v
///         undefined or not contiguous)
/// Source  Loshchilov, Hutter 2019, arXiv:1711.05101, algorithm 2, with the learning rate in front
///         of the decay
void adamw_step(std::span<const AdamWParam> params, AdamWOptions options);

}  // namespace sluice::ops
