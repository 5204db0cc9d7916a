// Where the rows of a tensor (B, H, T, D) lie; their D entries are dense.
#pragma once

#include <cstdint>

namespace sluice::kernels {

/// Distance in elements between neighbours along each axis.
struct RowStrides {
  int64_t batch = 0;
  int64_t head = 0;
  int64_t token = 0;
};

}  // namespace sluice::kernels
