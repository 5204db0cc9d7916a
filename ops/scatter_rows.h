// From packed rows per expert back to tokens.
#pragma once

#include <vector>

#include "engine/tensor.h"
#include "ops/routing_index.h"

namespace sluice::ops {

/// Puts the rows of each expert back at their tokens, weighted, and adds up a token's decisions.
///
///   out[b,t,:] = sum_k weights[b,t,k] * rows[e][slots[b,t,k] - slots_before(e), :],  e =
///   ids[b,t,k]
///
/// The sum runs over rising k in f32 or wider. A token all of whose decisions were dropped is 0;
/// without weights and with one decision per token this undoes gather_rows bit for bit.
///
/// Shapes  rows: E tensors (N_e, C), an undefined one stands for rows of zeros, one defined at
/// least;
///         weights: (B, T, K), (B, T) when K = 1, or undefined for all 1 -> (B, T, C)
/// DTypes  rows f32, bf16, f64, all equal; weights of that dtype, or f32 with bf16 rows
/// Grads   rows, weights (a dot product of length C in f32 or wider)
/// Cost    one pass over the rows, 2*N*C flops; backward one pass
/// Throws  ArgumentError (number of tensors, none defined), ShapeError, DTypeError, DeviceError
Tensor scatter_rows(
    const std::vector<Tensor>& rows, const RoutingIndex& index, const Tensor& weights = {});

}  // namespace sluice::ops
