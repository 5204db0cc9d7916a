// Matrix product with a fused epilogue. How it is cut into blocks is gemm_plan.h.
#pragma once

#include <cstddef>

#include "engine/context.h"
#include "engine/dtype.h"
#include "kernels/activation.h"

namespace sluice::kernels {

/// One operand: rows of contiguous elements. `transposed` says that memory holds the transpose of
/// the matrix that is multiplied, so its rows run along the other axis.
struct GemmMatrix {
  const void* data = nullptr;
  int64_t row_stride = 0;    // elements between rows as stored
  int64_t batch_stride = 0;  // elements between batches; 0 repeats one matrix
  bool transposed = false;
};

struct GemmArgs {
  DType dtype = DType::f32;  // of every operand; sums in f32, in f64 for f64
  int64_t batch = 1;
  int64_t m = 0, n = 0, k = 0;
  GemmMatrix a;       // (m, k)
  GemmMatrix b;       // (k, n)
  void* c = nullptr;  // (m, n), rows contiguous
  int64_t c_row_stride = 0;
  int64_t c_batch_stride = 0;
  bool accumulate = false;     // add to c instead of overwriting it
  const void* bias = nullptr;  // (n), the same for every batch, or null
  Activation activation = Activation::none;
  void* pre_activation = nullptr;  // strides of c; receives a * b + bias unless null
  void* scratch = nullptr;         // gemm_scratch_bytes, 64-byte aligned
};

/// Bytes of scratch that gemm needs on a pool of `threads` threads.
size_t gemm_scratch_bytes(const GemmArgs& args, int threads);

/// c[i,j] = activation(sum over k of a[i,k] * b[k,j] + bias[j]) (+ c[i,j]), for each batch.
///
/// The bits depend on the shapes, the layout of a and b and the instruction set, never on the
/// thread count. Those of a row do not depend on the number of rows or batches, but for two cases:
/// m < 8 with transposed b is computed by dot products, which sum in another order than the blocked
/// path, and with transposed a (weight gradients) a long sum is cut when there are few blocks.
void gemm(CpuContext& context, const GemmArgs& args);

}  // namespace sluice::kernels
