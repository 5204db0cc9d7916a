#include "ops/scatter_rows.h"

#include "autograd/node.h"
#include "engine/context.h"
#include "kernels/scatter_rows.h"
#include "ops/require.h"

namespace sluice::ops {
namespace {

DType accumulator_of(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

std::vector<const void*> pointers(std::span<const Tensor> rows) {
  std::vector<const void*> data;
  for (const Tensor& tensor : rows) data.push_back(tensor.defined() ? tensor.raw() : nullptr);
  return data;
}

std::vector<Tensor> inputs_of(const std::vector<Tensor>& rows, const Tensor& weights) {
  std::vector<Tensor> inputs = rows;
  inputs.push_back(weights);
  return inputs;
}

// Inputs: the E row tensors, then the weights.
struct ScatterRows final : autograd::Node {
  ScatterRows(
      const std::vector<Tensor>& inputs,
      const RoutingIndex& routing,
      const std::vector<Tensor>& dense,
      const Tensor& wide_weights)
      : Node("scatter_rows", std::span<const Tensor>(inputs)), index(routing) {
    for (const Tensor& tensor : dense) {
      shapes.push_back(tensor.defined() ? tensor.shape() : Shape{0, 0});
      if (tensor.defined()) dtype = tensor.dtype();
    }
    weights_dtype = inputs.back().defined() ? inputs.back().dtype() : dtype;
    if (inputs.back().defined()) weights_shape = inputs.back().shape();
    save({wide_weights});
    // The rows themselves are needed for the gradient of the weights only.
    if (needs(index.experts)) save(dense);
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor grad_out = to_contiguous(grads[0]);
    const Device device = grad_out.device();
    std::vector<Tensor> result(size_t(index.experts) + 1);
    std::vector<void*> grad_rows(size_t(index.experts), nullptr);
    std::vector<const void*> rows(size_t(index.experts), nullptr);
    for (int e = 0; e < index.experts; ++e) {
      const size_t i = size_t(e);
      if (needs(e)) grad_rows[i] = (result[i] = empty(shapes[i], {dtype, device})).raw();
      if (needs(index.experts) && saved(e + 1).defined()) rows[i] = saved(e + 1).raw();
    }
    Tensor grad_weights;
    if (needs(index.experts)) {
      grad_weights = empty(weights_shape, {accumulator_of(dtype), device});
    }
    const kernels::ScatterRowsBackward args{
        .index = index.view(),
        .grad_out = grad_out.raw(),
        .rows = rows.data(),
        .weights = saved(0).defined() ? saved(0).raw() : nullptr,
        .grad_rows = grad_rows.data(),
        .grad_weights = grad_weights.defined() ? grad_weights.raw() : nullptr,
        .dtype = dtype,
        .width = grad_out.size(2)};
    SLUICE_LAUNCH(device, name(), kernels::scatter_rows_backward, args);
    if (grad_weights.defined()) result.back() = to_dtype(grad_weights, weights_dtype);
    return result;
  }

  RoutingIndex index;
  std::vector<Shape> shapes;
  Shape weights_shape;
  DType dtype = DType::f32, weights_dtype = DType::f32;
};

}  // namespace

Tensor scatter_rows(
    const std::vector<Tensor>& rows, const RoutingIndex& index, const Tensor& weights) {
  constexpr const char* op = "scatter_rows";
  SLUICE_CHECK(
      int64_t(rows.size()) == index.experts,
      ArgumentError,
      "{}: rows must be {} tensors, got {}",
      op,
      index.experts,
      rows.size());
  Tensor first;
  for (const Tensor& tensor : rows) {
    if (tensor.defined() && !first.defined()) first = tensor;
  }
  SLUICE_CHECK(first.defined(), ArgumentError, "{}: rows must hold a tensor, got none", op);
  check_floating(first, op, "rows");
  check_device(first, index.ids.device(), op, "rows");
  SLUICE_CHECK(
      first.rank() == 2, ShapeError, "{}: rows must be (N, C), got {}", op, describe(first));
  const int64_t width = first.size(1);
  std::vector<Tensor> dense(rows.size());
  for (size_t e = 0; e < rows.size(); ++e) {
    if (!rows[e].defined()) continue;
    require_like(op, "rows", rows[e], {index.rows(int(e)), width}, first);
    dense[e] = to_contiguous(rows[e]);
  }

  Tensor wide_weights;
  const DType accumulator = accumulator_of(first.dtype());
  if (weights.defined()) {
    check_device(weights, first.device(), op, "weights");
    SLUICE_CHECK(
        weights.dtype() == first.dtype() || weights.dtype() == accumulator,
        DTypeError,
        "{}: weights must be {}{}, got {}",
        op,
        name_of(accumulator),
        first.dtype() == accumulator ? "" : " or bf16",
        name_of(weights.dtype()));
    const Shape full{index.batch, index.tokens, index.choices};
    if (weights.rank() != 2 || index.choices != 1)
      require_shape(op, "weights", weights, full);
    else
      require_shape(op, "weights", weights, {index.batch, index.tokens});
    wide_weights = to_contiguous(to_dtype(weights, accumulator));
  }

  const Tensor out = empty({index.batch, index.tokens, width}, {first.dtype(), first.device()});
  const auto data = pointers(dense);
  const kernels::ScatterRows args{
      .index = index.view(),
      .rows = data.data(),
      .weights = wide_weights.defined() ? wide_weights.raw() : nullptr,
      .out = out.raw(),
      .dtype = first.dtype(),
      .width = width};
  SLUICE_LAUNCH(first.device(), op, kernels::scatter_rows, args);
  const std::vector<Tensor> inputs = inputs_of(rows, weights);
  if (autograd::should_record(inputs)) {
    autograd::record<ScatterRows>(out, inputs, index, dense, wide_weights);
  }
  return out;
}

}  // namespace sluice::ops
