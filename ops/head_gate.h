// The gate of AttentionOptions: one differentiable factor per head, applied to what an attention op
// returns.
#pragma once

#include "ops/binary.h"
#include "ops/check.h"
#include "ops/require.h"
#include "ops/view.h"

namespace sluice::ops {

/// out[b,h] * gate[h] or gate[b,h]; `out` (B, H, T, D) itself when the gate is undefined. The
/// result lies token by token, as `out` does. Throws ShapeError, DTypeError, DeviceError naming
/// `op`.
inline Tensor apply_head_gate(const char* op, const Tensor& out, const Tensor& gate) {
  if (!gate.defined()) return out;
  check_like(gate, out, op, "head_gate");
  const int64_t B = out.size(0), H = out.size(1);
  const bool per_entry = gate.rank() == 2;
  require_shape(op, "head_gate", gate, per_entry ? Shape{B, H} : Shape{H});
  const Tensor factor = reshape(gate, {per_entry ? B : 1, 1, H, 1});
  return permute(mul(permute(out, {0, 2, 1, 3}), factor), {0, 2, 1, 3});
}

}  // namespace sluice::ops
