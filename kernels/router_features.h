// What a router reads of a token: its normed row, and two numbers that the norm took away or never
// knew.
#pragma once

#include "engine/context.h"
#include "engine/dtype.h"

namespace sluice::kernels {

struct RouterFeatures {
  DType dtype;  // of every pointer
  int64_t batch, tokens, width;
  int64_t offset;        // position of the first token
  double log_context;    // log(1 + context)
  const void* residual;  // (B, T, C), dense
  const void* normed;    // (B, T, C), dense
  void* out;             // (B, T, C + 2), dense
};

/// out[b, t] = normed[b, t], log of the root mean square of residual[b, t],
/// log(1 + offset + t) / log_context.
void router_features(CpuContext& context, const RouterFeatures& args);

}  // namespace sluice::kernels
