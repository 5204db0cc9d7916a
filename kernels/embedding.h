// Rows of a table by id, and the sums of gradients that go back to them.
#pragma once

#include <cstddef>

#include "engine/context.h"
#include "engine/dtype.h"

namespace sluice::kernels {

struct EmbeddingForward {
  DType dtype;     // of weight and out
  DType id_dtype;  // i32 or i64
  int64_t count, vocabulary, width;
  const void* weight;  // (vocabulary, width), rows dense
  int64_t weight_row_stride;
  const void* ids;  // (count)
  void* out;        // (count, width)
  int64_t*
      first_outside;  // (1) receives the first position whose id is not in [-1, vocabulary), or -1
};

/// out[i] = weight[ids[i]], 0 for id -1. Writes nothing but first_outside when there is such an id.
void embedding_forward(CpuContext& context, const EmbeddingForward& args);

struct EmbeddingBackward {
  DType dtype;
  DType id_dtype;
  int64_t count, vocabulary, width;
  const void* ids;       // (count), all in [-1, vocabulary)
  const void* grad_out;  // (count, width), rows dense
  int64_t grad_out_row_stride;
  void* grad_weight;  // (vocabulary, width)
  void* scratch;      // embedding_backward_scratch_bytes
};

/// grad_weight[r] = sum of grad_out[i] over the i with ids[i] == r, in rising order of i: one
/// writer per row, sums in f32 or wider, 0 for rows without ids.
void embedding_backward(CpuContext& context, const EmbeddingBackward& args);

size_t embedding_backward_scratch_bytes(const EmbeddingBackward& args);

}  // namespace sluice::kernels
