// One category per row of unnormalised probabilities.
#pragma once

#include <cstdint>

#include "engine/context.h"
#include "engine/dtype.h"
#include "engine/philox.h"

namespace sluice::kernels {

/// out[r] = the first k with u_r * sum_j p[r,j] < p[r,0] + .. + p[r,k], where u_r in (0, 1) is a
/// function of (key, r) only; sums are f64 in rising order. A category of probability 0 is never
/// drawn. -1 for a row that is no distribution: an entry negative, infinite or NaN, or sum 0.
struct CategoricalSample {
  const void* probs;  // (rows, categories)
  int32_t* out;       // (rows)
  DType dtype;
  int64_t rows, categories;
  PhiloxKey key;
};
void categorical_sample(CpuContext& context, const CategoricalSample& args);

}  // namespace sluice::kernels
