// Copies the rows of routed tokens into one compact matrix per expert. Bytes only: any dtype.
#pragma once

#include <cstdint>

#include "engine/context.h"
#include "kernels/routing_index.h"

namespace sluice::kernels {

/// rows[e][slot - first(e)] = x[b,t] for every decision (b,t,k) of expert e.
struct GatherRows {
  RoutingView index;
  const void* x;         // (batch, tokens, width), rows dense
  int64_t batch_stride;  // in bytes
  int64_t token_stride;  // in bytes
  void* const* rows;     // (experts) each (N_e, width) dense; null skips the expert
  int64_t row_bytes;
};
void gather_rows(CpuContext& context, const GatherRows& args);

}  // namespace sluice::kernels
