// Rotary position embedding of queries or keys.
#pragma once

#include "engine/tensor.h"

namespace sluice::ops {

struct RopeOptions {
  double theta = 10000;   ///< base of the wavelengths
  int64_t offset = 0;     ///< position of token 0, as in decoding behind a cache
  Tensor positions = {};  ///< (T) i32, in place of offset + t: packed documents, gathered tokens
};

/// Rotary embedding: the pair (i, i + D/2) of each row is turned by an angle that grows with the
/// row's position, so that q . k depends on the distance of their positions only.
///
///   a = p[t] * theta^(-2i/D), i < D/2
///   out[.., t, i]       = x[.., t, i] cos a - x[.., t, i + D/2] sin a
///   out[.., t, i + D/2] = x[.., t, i + D/2] cos a + x[.., t, i] sin a
///
/// Shapes  x: (B, H, T, D) with any strides, D even -> (B, H, T, D), a view of (B, T, H, D) memory
/// DTypes  f32, f64, bf16 (angles in f64)
/// Units   positions in tokens, angles in radians
/// Grads   x (the inverse rotation)
/// Cost    3 flops per element and T*D/2 angles; saves the (2, T, D/2) table
/// Throws  ShapeError (rank, odd D, positions), DTypeError, DeviceError, ArgumentError (theta <= 0)
/// Source  Su et al. 2021, arXiv:2104.09864, equation 34, with halves in place of neighbours
Tensor rope(const Tensor& x, const RopeOptions& options = {});

}  // namespace sluice::ops
