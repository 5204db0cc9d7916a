// Entries of one axis by id, and the sums of gradients that go back to them.
#pragma once

#include "engine/context.h"
#include "engine/dtype.h"

namespace sluice::kernels {

/// out[o, i] = x[o, ids[i]], rows of `inner` elements; 0 for id -1. `first_outside` receives the
/// first position whose id is not in [-1, extent), or -1; when there is one, nothing else is
/// written.
struct IndexSelect {
  int64_t element_bytes;
  DType id_dtype;  // i32 or i64
  int64_t outer, extent, count, inner;
  const void* x;    // (outer, extent, inner)
  const void* ids;  // (count)
  void* out;        // (outer, count, inner)
  int64_t* first_outside;
};

void index_select(CpuContext& context, const IndexSelect& args);

/// grad_x[o, r] = sum of grad[o, i] over the i with ids[i] == r, in rising order of i in f32 or
/// wider; 0 without any.
struct IndexSelectGradient {
  DType dtype;
  DType id_dtype;
  int64_t outer, extent, count, inner;
  const void* ids;   // (count), all in [-1, extent)
  const void* grad;  // (outer, count, inner)
  void* grad_x;      // (outer, extent, inner)
  int64_t* scratch;  // index_select_gradient_scratch_bytes
};

void index_select_gradient(CpuContext& context, const IndexSelectGradient& args);

inline int64_t index_select_gradient_scratch_bytes(int64_t extent, int64_t count) {
  return (extent + 1 + count) * int64_t(sizeof(int64_t));
}

}  // namespace sluice::kernels
