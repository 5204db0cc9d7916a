// Integer ids (tokens, classes) in either of the two widths that ops accept.
#pragma once

#include "kernels/simd/simd.h"

namespace sluice::kernels::SLUICE_ISA {

/// Calls body.template operator()<Id>() with Id int32_t or int64_t.
template <class Body>
SLUICE_INLINE void dispatch_ids(DType dtype, Body&& body) {
  if (dtype == DType::i32)
    body.template operator()<int32_t>();
  else
    body.template operator()<int64_t>();
}

struct IdScan {
  int64_t kept = 0;            // ids other than `ignored`
  int64_t first_outside = -1;  // position of the first id that is neither ignored nor in [0, limit)
};

template <class Id>
SLUICE_INLINE IdScan scan_ids(const Id* ids, int64_t count, int64_t limit, int64_t ignored) {
  IdScan scan;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t id = ids[i];
    if (id == ignored) continue;
    ++scan.kept;
    if ((id < 0 || id >= limit) && scan.first_outside < 0) scan.first_outside = i;
  }
  return scan;
}

}  // namespace sluice::kernels::SLUICE_ISA
