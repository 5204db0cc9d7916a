// Zeroing random elements in training.
#pragma once

#include "engine/philox.h"
#include "engine/tensor.h"

namespace sluice::ops {

struct DropoutOptions {
  double p = 0;     ///< probability of a zero, in [0, 1)
  PhiloxKey key{};  ///< of the mask; give each call of a step its own stream
};

/// Inverted dropout: with probability p an element becomes 0, else it is scaled to keep its mean.
///
///   out[i] = x[i] / (1 - p) where u[i] >= p, else 0; u[i] = unit_float of word i % 4 of counter
///   i / 4, i the row-major index
///
/// The mask is a pure function of (key, i): the same for every dtype, device, layout and thread
/// count, and drawn again in backward instead of being stored. p = 0 returns `x` itself.
///
/// Shapes  any -> the same
/// DTypes  f32, bf16, f64
/// Grads   x
/// Throws  ArgumentError (p outside [0, 1), undefined), DTypeError
/// Source  Srivastava et al. 2014, JMLR 15, section 4
Tensor dropout(const Tensor& x, const DropoutOptions& options);

}  // namespace sluice::ops
