// The input of a routing network.
#pragma once

#include <cstdint>

#include "engine/tensor.h"

namespace sluice::ops {

struct RouterFeaturesOptions {
  int64_t offset = 0;      ///< position of the first token
  int64_t context = 1024;  ///< the position at which its feature is 1
};

/// A token's normed row, with the size that normalisation took away and the token's position.
///
///   out[b,t] = [normed[b,t,:], log(mean_c(residual[b,t,c]^2) + 1e-12) / 2,
///               log(1 + offset + t) / log(1 + context)]
///
/// Shapes  residual, normed: (B, T, C) -> (B, T, C + 2)
/// DTypes  f32, f64, bf16 (sums in f32), equal
/// Grads   normed; none to residual: its size is read, not shaped, by the router
/// Cost    2 flops per element, one pass; saves nothing
/// Throws  ShapeError, DTypeError, DeviceError, ArgumentError (offset < 0, context < 1)
Tensor router_features(
    const Tensor& residual, const Tensor& normed, RouterFeaturesOptions options = {});

}  // namespace sluice::ops
