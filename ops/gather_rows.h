// Rows of routed tokens, packed per expert.
#pragma once

#include <vector>

#include "engine/tensor.h"
#include "ops/routing_index.h"

namespace sluice::ops {

/// The rows of x that were routed to each expert, in token order.
///
///   out[e][slots[b,t,k] - slots_before(e), :] = x[b,t,:],  e = ids[b,t,k]
///
/// Shapes  x: (B, T, C) -> E tensors (N_e, C), N_e = index.rows(e)
/// DTypes  all
/// Grads   x, in one pass: a token's gradient is the sum over its decisions in f32 or f64
/// Cost    copies each routed row once; reads the counts from the device
/// Throws  ArgumentError (undefined), ShapeError (B or T differ from the index), DeviceError
std::vector<Tensor> gather_rows(const Tensor& x, const RoutingIndex& index);

/// The rows of one expert alone. Throws ArgumentError (expert out of range), else as above.
Tensor gather_rows(const Tensor& x, const RoutingIndex& index, int expert);

}  // namespace sluice::ops
