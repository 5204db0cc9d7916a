// The largest entries of each row and where they are.
#pragma once

#include "engine/tensor.h"

namespace sluice::ops {

struct TopK {
  Tensor values;  ///< (..., k) in falling order
  Tensor ids;     ///< (..., k) i32
};

/// The k largest scores of each row.
///
///   values[..,j] = scores[.., ids[..,j]], values[..,0] >= values[..,1] >= ..
///
/// Equal scores are taken by rising index. NaN ranks last, after minus infinity: it is chosen only
/// when fewer than k other scores are left, and then it is in the result.
///
/// Shapes  scores: (..., E), 1 <= k <= E -> (..., k)
/// DTypes  f32, bf16, f64; ids i32
/// Grads   scores, through values
/// Cost    about E comparisons per row for k much smaller than E; at worst E * k
/// Throws  ArgumentError (undefined, k), DTypeError, ShapeError (rank 0)
TopK top_k(const Tensor& scores, int k);

}  // namespace sluice::ops
