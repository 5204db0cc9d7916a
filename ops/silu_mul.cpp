#include "ops/silu_mul.h"

#include "autograd/node.h"
#include "engine/context.h"
#include "engine/strided.h"
#include "kernels/silu_mul.h"
#include "ops/require.h"

namespace sluice::ops {
namespace {

// Both operands as rows of one length with a dense inner axis.
struct Rows {
  Tensor gate, up;
  int64_t rows, width;
  int64_t gate_stride, up_stride;
};

Rows as_rows(const Tensor& gate, const Tensor& up) {
  const Strides dense = contiguous_strides(gate.shape());
  // The output is dense, so its strides say where axes may be merged, too.
  const StridedLoop<3> loop(gate.shape(), {gate.strides(), up.strides(), dense});
  if (loop.outer_rank <= 1 && loop.inner_stride == std::array<int64_t, 3>{1, 1, 1}) {
    const bool single = loop.outer_rank == 0;
    return {
        gate,
        up,
        loop.rows,
        loop.inner,
        single ? 0 : loop.outer_stride[0][0],
        single ? 0 : loop.outer_stride[1][0]};
  }
  return {to_contiguous(gate), to_contiguous(up), 1, gate.numel(), 0, 0};
}

struct SiluMul final : autograd::Node {
  SiluMul(const Tensor& gate, const Tensor& up) : Node("silu_mul", {gate, up}) { save({gate, up}); }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Rows rows = as_rows(saved(0), saved(1));
    const Tensor grad_out = to_contiguous(grads[0]);
    const Tensor grad_gate = needs(0) ? empty_like(rows.gate) : Tensor();
    const Tensor grad_up = needs(1) ? empty_like(rows.up) : Tensor();
    const kernels::SiluMulBackward args{
        .dtype = rows.gate.dtype(),
        .rows = rows.rows,
        .width = rows.width,
        .gate = rows.gate.raw(),
        .gate_stride = rows.gate_stride,
        .up = rows.up.raw(),
        .up_stride = rows.up_stride,
        .grad_out = grad_out.raw(),
        .grad_gate = grad_gate.defined() ? grad_gate.raw() : nullptr,
        .grad_up = grad_up.defined() ? grad_up.raw() : nullptr};
    SLUICE_LAUNCH(rows.gate.device(), "silu_mul", kernels::silu_mul_backward, args);
    return {grad_gate, grad_up};
  }
};

}  // namespace

Tensor silu_mul(const Tensor& gate, const Tensor& up) {
  check_floating(gate, "silu_mul", "gate");
  require_like("silu_mul", "up", up, gate.shape(), gate);
  const Rows rows = as_rows(gate, up);
  const Tensor out = empty_like(gate);
  const kernels::SiluMulForward args{
      .dtype = gate.dtype(),
      .rows = rows.rows,
      .width = rows.width,
      .gate = rows.gate.raw(),
      .gate_stride = rows.gate_stride,
      .up = rows.up.raw(),
      .up_stride = rows.up_stride,
      .out = out.raw()};
  SLUICE_LAUNCH(gate.device(), "silu_mul", kernels::silu_mul_forward, args);
  if (autograd::should_record({gate, up})) autograd::record<SiluMul>(out, gate, up);
  return out;
}

}  // namespace sluice::ops
