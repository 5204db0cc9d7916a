#include "ops/rope.h"

#include "autograd/node.h"
#include "engine/context.h"
#include "kernels/rope.h"
#include "ops/head_layout.h"
#include "ops/require.h"

namespace sluice::ops {
namespace {

enum class Direction { forward, inverse };

// (2, T, D/2): cosines, then sines.
Tensor angle_table(const Tensor& x, const RopeOptions& options) {
  const int64_t tokens = x.size(2);
  const int64_t half = x.size(3) / 2;
  const DType dtype = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Tensor table = empty({2, tokens, half}, {dtype, x.device()});
  auto* cosines = static_cast<std::byte*>(table.raw());
  kernels::RopeTable args{
      .dtype = x.dtype(),
      .tokens = tokens,
      .width = x.size(3),
      .theta = options.theta,
      .offset = options.offset,
      .positions = options.positions.defined() ? options.positions.data<int32_t>() : nullptr,
      .cosines = cosines,
      .sines = cosines + size_t(tokens * half) * size_of(dtype),
      .scratch = nullptr};
  const auto bytes = int64_t(kernels::rope_table_scratch_bytes(args));
  const Tensor scratch = empty({bytes}, {DType::u8, x.device()});
  args.scratch = static_cast<double*>(scratch.raw());
  SLUICE_LAUNCH(x.device(), "rope", kernels::rope_table, args);
  return table;
}

Tensor rotate(const Tensor& x, const Tensor& table, Direction direction) {
  const Tensor rows = with_dense_rows(x);
  const Tensor out = empty_heads(x.shape(), {x.dtype(), x.device()});
  const auto* cosines = static_cast<const std::byte*>(table.raw());
  const kernels::Rope args{
      .dtype = x.dtype(),
      .batch = x.size(0),
      .heads = x.size(1),
      .tokens = x.size(2),
      .width = x.size(3),
      .x = rows.raw(),
      .x_strides = row_strides(rows),
      .out = out.raw(),
      .out_strides = row_strides(out),
      .cosines = cosines,
      .sines = cosines + size_t(table.numel() / 2) * size_of(table.dtype()),
      .inverse = direction == Direction::inverse};
  SLUICE_LAUNCH(x.device(), "rope", kernels::rope, args);
  return out;
}

struct Rope final : autograd::Node {
  Rope(const Tensor& x, const Tensor& table) : Node("rope", {x}) { save({table}); }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    return {rotate(grads[0], saved(0), Direction::inverse)};
  }
};

}  // namespace

Tensor rope(const Tensor& x, const RopeOptions& options) {
  check_floating(x, "rope", "x");
  SLUICE_CHECK(
      x.rank() == 4,
      ShapeError,
      "rope: x must have rank 4 (B, H, T, D), got {}",
      to_string(x.shape()));
  SLUICE_CHECK(x.size(3) % 2 == 0, ShapeError, "rope: head width must be even, got {}", x.size(3));
  SLUICE_CHECK(options.theta > 0, ArgumentError, "rope: theta must be > 0, got {}", options.theta);
  RopeOptions dense = options;
  if (options.positions.defined()) {
    require_shape("rope", "positions", options.positions, {x.size(2)});
    check_dtype(options.positions, DType::i32, "rope", "positions");
    check_device(options.positions, x.device(), "rope", "positions");
    dense.positions = to_contiguous(options.positions);
  }
  const Tensor table = angle_table(x, dense);
  const Tensor out = rotate(x, table, Direction::forward);
  if (autograd::should_record({x})) autograd::record<Rope>(out, x, table);
  return out;
}

}  // namespace sluice::ops
