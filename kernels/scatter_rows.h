// The way back from compact rows per expert to tokens: a weighted sum over each token's decisions.
#pragma once

#include <cstdint>

#include "engine/context.h"
#include "engine/dtype.h"
#include "kernels/routing_index.h"

namespace sluice::kernels {

/// out[b,t] = sum over k of weights[b,t,k] * rows[e][slot - first(e)], e = ids[b,t,k], in rising k,
/// in Accumulator<dtype>. Dropped decisions and experts without rows add nothing.
struct ScatterRows {
  RoutingView index;
  const void* const* rows;  // (experts) each (N_e, width) dense, or null
  const void* weights;      // (batch, tokens, choices) in Accumulator<dtype>; null: all 1
  void* out;                // (batch, tokens, width)
  DType dtype;
  int64_t width;
};
void scatter_rows(CpuContext& context, const ScatterRows& args);

/// grad_rows[e][slot - first(e)] = weights[b,t,k] * grad_out[b,t] and
/// grad_weights[b,t,k] = <grad_out[b,t], rows[e][slot - first(e)]>, 0 for dropped decisions.
struct ScatterRowsBackward {
  RoutingView index;
  const void* grad_out;     // (batch, tokens, width)
  const void* const* rows;  // (experts), as forward; read for grad_weights only
  const void* weights;      // as forward
  void* const* grad_rows;   // (experts) null where not wanted
  void* grad_weights;       // (batch, tokens, choices) in Accumulator<dtype>, or null
  DType dtype;
  int64_t width;
};
void scatter_rows_backward(CpuContext& context, const ScatterRowsBackward& args);

}  // namespace sluice::kernels
