// Sums, sums of products and maxima over some axes of a tensor.
#pragma once

#include "engine/context.h"
#include "engine/dtype.h"
#include "engine/strided.h"

namespace sluice::kernels {

enum class ReduceFunction : uint8_t { sum, max };

/// out[k] = scale * sum over r of x[k, r] * y[k, r] (y null: of x[k, r]), or max over r of x[k, r].
/// k runs over the kept axes, r over the reduced ones; operands of both loops: x, y (x again when
/// y is null). A NaN in x makes the maximum NaN; the maximum of nothing is -infinity.
struct ReduceArgs {
  ReduceFunction function;
  DType dtype;
  void* out;  // dense, in the order of k
  const void* x;
  const void* y;
  double scale;
  StridedLoop<2> kept;
  StridedLoop<2> reduced;

  // How the work is cut, from plan_reduce.
  bool columns = false;        // registers run along k (else along r)
  int64_t blocks = 0;          // pieces of k: kReduceColumns neighbours, or one when !columns
  int64_t bundle = 1;          // blocks per chunk
  int64_t segments = 1;        // pieces of r
  int64_t segment = 0;         // extent of a piece
  double* partials = nullptr;  // (segments, numel of k) when segments > 1
};

inline constexpr int64_t kReduceColumns = 128;

/// Fills in the cut, which depends on shapes and strides only.
void plan_reduce(ReduceArgs& args);
/// Bytes that `partials` must point to. Call after plan_reduce.
int64_t reduce_scratch_bytes(const ReduceArgs& args);

void reduce(CpuContext& context, const ReduceArgs& args);

/// grad_x[k, r] = grad[k] at the first r where x[k, r] is the maximum out[k] (or NaN), and nothing
/// elsewhere: grad_x comes filled with zeros. Operands of both loops: x, grad_x.
struct MaxGradientArgs {
  DType dtype;
  void* grad_x;
  const void* x;
  const void* out;   // dense
  const void* grad;  // dense
  StridedLoop<2> kept;
  StridedLoop<2> reduced;
};

void max_gradient(CpuContext& context, const MaxGradientArgs& args);

}  // namespace sluice::kernels
