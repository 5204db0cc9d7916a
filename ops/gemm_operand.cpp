#include "ops/gemm_operand.h"

namespace sluice::ops {

Rows as_rows(const Tensor& tensor) {
  const Shape& shape = tensor.shape();
  const int last = tensor.rank() - 1;
  Rows out{tensor, 1, shape[last], shape[last]};
  bool even = shape[last] <= 1 || tensor.strides()[size_t(last)] == 1;
  for (int axis = last - 1; axis >= 0; --axis) {
    if (shape[axis] == 1) continue;
    const int64_t step = tensor.strides()[size_t(axis)];
    // The first axis sets the distance of rows; each further one must continue it.
    if (out.rows == 1) out.stride = step;
    even = even && step == out.stride * out.rows;
    out.rows *= shape[axis];
  }
  if (even) return out;
  return {clone(tensor), out.rows, out.columns, out.columns};
}

GemmOperand gemm_operand(const Tensor& tensor, bool transposed) {
  const int last = tensor.rank() - 1;
  // An axis of extent 1 is dense whatever its stride says, and its stride is never used.
  const auto dense = [&](const Tensor& t, int axis) {
    return t.shape()[axis] <= 1 || t.strides()[size_t(axis)] == 1;
  };
  const bool rows = dense(tensor, last);
  const bool columns = dense(tensor, last - 1);
  const Tensor usable = rows || columns ? tensor : clone(tensor);
  const bool flip = !rows && columns;
  const int64_t stride = usable.strides()[size_t(flip ? last : last - 1)];
  return {usable, {usable.raw(), stride, 0, transposed != flip}};
}

void launch_gemm(const char* op, Device device, kernels::GemmArgs args) {
  const auto bytes = int64_t(kernels::gemm_scratch_bytes(args, num_threads()));
  const Tensor scratch = empty({bytes}, {DType::u8, device});
  args.scratch = scratch.raw();
  SLUICE_LAUNCH(device, op, kernels::gemm, args);
}

}  // namespace sluice::ops
