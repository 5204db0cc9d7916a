// Where each id occurs: what lets the gradient of a gather have one writer per row.
#pragma once

#include "kernels/simd/simd.h"

namespace sluice::kernels::SLUICE_ISA {

/// positions[offsets[r] .. offsets[r + 1]) are the places of id r in [0, limit), in rising order;
/// negative ids are left out. offsets: (limit + 1), positions: (count). A stable counting sort on
/// the calling thread: one pass over the ids, little beside the rows they stand for.
template <class Id>
SLUICE_INLINE void group_ids(
    const Id* ids, int64_t count, int64_t limit, int64_t* offsets, int64_t* positions) {
  for (int64_t r = 0; r <= limit; ++r) offsets[r] = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (ids[i] >= 0) ++offsets[ids[i]];
  }
  int64_t end = 0;
  for (int64_t r = 0; r <= limit; ++r) offsets[r] = end += offsets[r];
  // Each offset is the end of its group; filling from the back turns it into the start.
  for (int64_t i = count - 1; i >= 0; --i) {
    if (ids[i] >= 0) positions[--offsets[ids[i]]] = i;
  }
}

}  // namespace sluice::kernels::SLUICE_ISA
