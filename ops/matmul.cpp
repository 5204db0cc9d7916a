#include "ops/matmul.h"

#include "autograd/node.h"
#include "engine/strided.h"
#include "ops/check.h"
#include "ops/gemm_operand.h"

namespace sluice::ops {
namespace {

constexpr const char* kOp = "matmul";

struct Factor {
  const Tensor& tensor;
  bool transposed;
};

Shape batch_shape(const Tensor& tensor) {
  return Shape(tensor.shape().dims().first(size_t(tensor.rank() - 2)));
}

// Strides of the batch axes of `tensor` within `batch`: 0 where it is repeated.
Strides batch_strides(const Tensor& tensor, const Shape& batch) {
  Strides strides{};
  const int missing = batch.rank() - (tensor.rank() - 2);
  for (int axis = missing; axis < batch.rank(); ++axis) {
    const bool repeated = tensor.shape()[axis - missing] == 1;
    strides[size_t(axis)] = repeated ? 0 : tensor.strides()[size_t(axis - missing)];
  }
  return strides;
}

// Runs along one batch axis. Where memory allows, the axis becomes part of m (b is repeated) or of
// k (out is summed over it), so that one product replaces a batch of small ones.
class BatchAxis {
 public:
  BatchAxis(const kernels::GemmArgs& args, int64_t extent) : args_(args) {
    const auto continues = [](int64_t batch_stride, int64_t rows, int64_t row_stride) {
      return batch_stride == rows * row_stride;
    };
    const bool rows_of_a = continues(args.a.batch_stride, args.m, args.a.row_stride);
    const bool rows_of_c = continues(args.c_batch_stride, args.m, args.c_row_stride);
    if (extent > 1 && args.b.batch_stride == 0 && !args.a.transposed && rows_of_a && rows_of_c) {
      args_.m *= extent;
    } else if (
        extent > 1 && args.c_batch_stride == 0 && args.a.transposed && !args.b.transposed &&
        continues(args.a.batch_stride, args.k, args.a.row_stride) &&
        continues(args.b.batch_stride, args.k, args.b.row_stride)) {
      args_.k *= extent;
    } else if (args.c_batch_stride == 0) {
      launches_ = extent;
    } else {
      args_.batch = extent;
    }
  }

  int64_t launches() const { return launches_; }

  void launch(Device device, const std::array<int64_t, 3>& offset, bool accumulate) const {
    kernels::GemmArgs args = args_;
    args.accumulate = accumulate;
    const auto size = int64_t(size_of(args.dtype));
    const auto step = [&](const void* data, int64_t elements) {
      return static_cast<const std::byte*>(data) + elements * size;
    };
    for (int64_t i = 0; i < launches_; ++i) {
      args.a.data = step(args_.a.data, offset[0] + i * args_.a.batch_stride);
      args.b.data = step(args_.b.data, offset[1] + i * args_.b.batch_stride);
      args.c = static_cast<std::byte*>(args_.c) + offset[2] * size;
      launch_gemm(kOp, device, args);
    }
  }

 private:
  kernels::GemmArgs args_;
  int64_t launches_ = 1;
};

// out = a * b for each batch of `batch`; where out is repeated the products are summed.
void multiply(Factor a, Factor b, const Tensor& out, const Shape& batch) {
  const GemmOperand left = gemm_operand(a.tensor, a.transposed);
  const GemmOperand right = gemm_operand(b.tensor, b.transposed);
  const StridedLoop<3> loop(
      batch,
      {batch_strides(left.tensor, batch),
       batch_strides(right.tensor, batch),
       batch_strides(out, batch)});
  kernels::GemmArgs args;
  args.dtype = out.dtype();
  args.m = out.size(-2);
  args.n = out.size(-1);
  args.k = a.tensor.size(a.transposed ? -2 : -1);
  args.a = left.matrix;
  args.b = right.matrix;
  args.a.batch_stride = loop.inner_stride[0];
  args.b.batch_stride = loop.inner_stride[1];
  args.c = out.raw();
  args.c_row_stride = args.n;
  args.c_batch_stride = loop.inner_stride[2];
  const BatchAxis axis(args, loop.inner);

  const int64_t products = batch.numel();
  const int64_t written = batch_shape(out).numel();
  const bool sums = products != written && loop.rows * axis.launches() != 1;
  if (sums || products == 0) fill(out, 0);
  for (int64_t row = 0; row < loop.rows; ++row) {
    axis.launch(out.device(), loop.offsets(row), sums);
  }
}

Tensor gradient(Factor a, Factor b, const Tensor& like, const Shape& batch) {
  // Sums over repeated batches would be rounded to bf16 after every product.
  if (like.dtype() == DType::bf16 && batch_shape(like).numel() != batch.numel()) {
    const Tensor wide = empty(like.shape(), {DType::f32, like.device()});
    const Tensor wide_a = to_dtype(a.tensor, DType::f32);
    const Tensor wide_b = to_dtype(b.tensor, DType::f32);
    multiply({wide_a, a.transposed}, {wide_b, b.transposed}, wide, batch);
    return to_dtype(wide, DType::bf16);
  }
  const Tensor out = empty_like(like);
  multiply(a, b, out, batch);
  return out;
}

struct Matmul final : autograd::Node {
  Matmul(const Tensor& a, const Tensor& b, MatmulOptions options, const Shape& batch)
      : Node(kOp, {a, b}), options_(options), batch_(batch) {
    save({a, b});
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor& a = saved(0);
    const Tensor& b = saved(1);
    const Tensor& grad = grads[0];
    const bool ta = options_.transpose_a;
    const bool tb = options_.transpose_b;
    Tensor grad_a, grad_b;
    if (needs(0)) {
      grad_a = ta ? gradient({b, tb}, {grad, true}, a, batch_)
                  : gradient({grad, false}, {b, !tb}, a, batch_);
    }
    if (needs(1)) {
      grad_b = tb ? gradient({grad, true}, {a, ta}, b, batch_)
                  : gradient({a, !ta}, {grad, false}, b, batch_);
    }
    return {grad_a, grad_b};
  }

  MatmulOptions options_;
  Shape batch_;
};

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, MatmulOptions options) {
  check_floating(a, kOp, "a");
  check_like(b, a, kOp, "b");
  SLUICE_CHECK(
      a.rank() >= 2, ShapeError, "matmul: a must have rank >= 2, got {}", to_string(a.shape()));
  SLUICE_CHECK(
      b.rank() >= 2, ShapeError, "matmul: b must have rank >= 2, got {}", to_string(b.shape()));
  const int64_t m = a.size(options.transpose_a ? -1 : -2);
  const int64_t k = a.size(options.transpose_a ? -2 : -1);
  const int64_t n = b.size(options.transpose_b ? -2 : -1);
  const int64_t inner = b.size(options.transpose_b ? -1 : -2);
  SLUICE_CHECK(
      inner == k,
      ShapeError,
      "matmul: the summed axis of b must be {}, got {} in {}",
      k,
      inner,
      to_string(b.shape()));
  const Shape batch = broadcast_shapes(batch_shape(a), batch_shape(b), kOp);
  std::vector<int64_t> dims(batch.dims().begin(), batch.dims().end());
  dims.insert(dims.end(), {m, n});
  const Tensor out = empty(Shape(dims), {a.dtype(), a.device()});
  multiply({a, options.transpose_a}, {b, options.transpose_b}, out, batch);
  if (autograd::should_record({a, b})) autograd::record<Matmul>(out, a, b, options, batch);
  return out;
}

}  // namespace sluice::ops
