// Rows shared among threads where no partial sums are kept.
#pragma once

#include "engine/strided.h"
#include "kernels/simd/simd.h"

namespace sluice::kernels::SLUICE_ISA {

/// body(first_row, last_row) over all rows in bundles of about kParallelElements elements, so a
/// small tensor is one bundle and starts no thread. `row_elements` counts what a row reads and
/// writes.
template <class Body>
SLUICE_INLINE void for_each_row_bundle(
    ThreadPool& pool, int64_t rows, int64_t row_elements, Body&& body) {
  const int64_t each = 1 + kParallelElements / (row_elements > 0 ? row_elements : 1);
  parallel_for(pool, (rows + each - 1) / each, [&](int64_t bundle) {
    const int64_t end = (bundle + 1) * each;
    body(bundle * each, end < rows ? end : rows);
  });
}

}  // namespace sluice::kernels::SLUICE_ISA
