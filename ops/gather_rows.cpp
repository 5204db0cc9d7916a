#include "ops/gather_rows.h"

#include "autograd/node.h"
#include "engine/context.h"
#include "kernels/gather_rows.h"
#include "ops/check.h"
#include "ops/scatter_rows.h"

namespace sluice::ops {
namespace {

// Outputs are the experts [first, first + count).
struct GatherRows final : autograd::Node {
  GatherRows(const Tensor& x, const RoutingIndex& routing, int first_expert)
      : Node("gather_rows", {x}), index(routing), first(first_expert), like{x.dtype(), x.device()} {
    width = x.size(2);
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    std::vector<Tensor> rows(size_t(index.experts));
    for (size_t i = 0; i < grads.size(); ++i) rows[size_t(first) + i] = grads[i];
    for (Tensor& grad : rows) {
      // One tensor at least tells scatter_rows the width; a null one adds nothing.
      if (grad.defined()) return {scatter_rows(rows, index)};
    }
    return {zeros({index.batch, index.tokens, width}, like)};
  }

  RoutingIndex index;
  int first;
  int64_t width;
  TensorOptions like;
};

std::vector<Tensor> gather(const Tensor& x, const RoutingIndex& index, int first, int count) {
  check_defined(x, "gather_rows", "x");
  check_device(x, index.ids.device(), "gather_rows", "x");
  SLUICE_CHECK(
      x.rank() == 3 && x.size(0) == index.batch && x.size(1) == index.tokens,
      ShapeError,
      "gather_rows: x must have shape ({}, {}, C), got {}",
      index.batch,
      index.tokens,
      to_string(x.shape()));
  const int64_t width = x.size(2);
  const Tensor rows_dense = width <= 1 || x.stride(2) == 1 ? x : clone(x);
  std::vector<Tensor> out;
  std::vector<void*> rows(size_t(index.experts), nullptr);
  for (int e = first; e < first + count; ++e) {
    out.push_back(empty({index.rows(e), width}, {x.dtype(), x.device()}));
    rows[size_t(e)] = out.back().raw();
  }
  const auto size = int64_t(size_of(x.dtype()));
  const kernels::GatherRows args{
      .index = index.view(),
      .x = rows_dense.raw(),
      .batch_stride = rows_dense.stride(0) * size,
      .token_stride = rows_dense.stride(1) * size,
      .rows = rows.data(),
      .row_bytes = width * size};
  SLUICE_LAUNCH(x.device(), "gather_rows", kernels::gather_rows, args);
  if (autograd::should_record({x})) {
    autograd::set_history(std::make_shared<GatherRows>(x, index, first), out);
  }
  return out;
}

}  // namespace

std::vector<Tensor> gather_rows(const Tensor& x, const RoutingIndex& index) {
  return gather(x, index, 0, index.experts);
}

Tensor gather_rows(const Tensor& x, const RoutingIndex& index, int expert) {
  SLUICE_CHECK(
      expert >= 0 && expert < index.experts,
      ArgumentError,
      "gather_rows: expert must be in [0, {}), got {}",
      index.experts,
      expert);
  return gather(x, index, expert, 1)[0];
}

}  // namespace sluice::ops
