// Random routing decisions, and memory larger than the machine for index tests.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/tensor.h"

namespace sluice::testing {

/// Ids in [-1, experts), about one in eight -1 when `drop`.
Tensor random_ids(const Shape& shape, int experts, uint64_t seed, bool drop = true);

/// A zero tensor whose pages exist once they are touched: for tests of offsets beyond 2^31.
Tensor sparse_zeros(const Shape& shape, DType dtype);

}  // namespace sluice::testing
