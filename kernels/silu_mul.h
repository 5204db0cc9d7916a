// The gate of a SwiGLU block: silu(gate) * up, rows of which may be strided.
#pragma once

#include "engine/context.h"
#include "engine/dtype.h"

namespace sluice::kernels {

struct SiluMulForward {
  DType dtype;
  int64_t rows, width;  // one long row when everything is dense
  const void* gate;     // (rows, width)
  int64_t gate_stride;  // elements from row to row
  const void* up;       // (rows, width)
  int64_t up_stride;
  void* out;  // (rows, width), dense
};

/// out = gate / (1 + e^-gate) * up.
void silu_mul_forward(CpuContext& context, const SiluMulForward& args);

struct SiluMulBackward {
  DType dtype;
  int64_t rows, width;
  const void* gate;
  int64_t gate_stride;
  const void* up;
  int64_t up_stride;
  const void* grad_out;  // (rows, width), dense
  void* grad_gate;       // (rows, width), dense; null: not wanted
  void* grad_up;         // (rows, width), dense; null: not wanted
};

void silu_mul_backward(CpuContext& context, const SiluMulBackward& args);

}  // namespace sluice::kernels
