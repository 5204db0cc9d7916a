// A thread takes a run of (batch, token) rows with all their heads: in the usual (B, T, H, D)
// memory that is one contiguous stretch. Weight gradients go to one partial buffer per run.
#include "kernels/rms_norm.h"

#include "kernels/simd/dispatch.h"
#include "kernels/simd/rows.h"

namespace sluice::kernels::SLUICE_ISA {

template <class A>
SLUICE_INLINE A square_root(A x) {
  if constexpr (sizeof(A) == 8)
    return __builtin_sqrt(x);
  else
    return __builtin_sqrtf(x);
}

template <class T>
struct RmsNorm {
  using A = Accumulator<T>;
  using V = Vec<A>;

  // The weight of `count` columns from `i`, offset included; `weight` null means ones.
  static SLUICE_INLINE V weight_at(const T* weight, V offset, int64_t i, int count) {
    return weight != nullptr ? load_count(weight + i, count) + offset : V::broadcast(A(1));
  }

  static SLUICE_INLINE void forward_row(
      const RmsNormForward& args, const T* x, const T* weight, T* out) {
    V square = V::zero();
    for_each_vector<T>(
        args.width, [&](int64_t i, int count) __attribute__((always_inline)) {
          const V value = load_count(x + i, count);
          square += value * value;
        });
    const A mean = reduce_add(square) / A(args.width);
    const V inverse = V::broadcast(A(1) / square_root(mean + A(args.eps)));
    const V offset = V::broadcast(A(args.weight_offset));
    for_each_vector<T>(
        args.width, [&](int64_t i, int count) __attribute__((always_inline)) {
          const V scale = inverse * weight_at(weight, offset, i, count);
          store_count(out + i, load_count(x + i, count) * scale, count);
        });
  }

  // With r = 1 / sqrt(mean(x^2) + eps) and g = grad_out * weight:
  // grad_x = r * (g - x * r^2 * mean(g * x)), grad_weight += grad_out * x * r.
  static SLUICE_INLINE void backward_row(
      const RmsNormBackward& args,
      const T* x,
      const T* weight,
      const T* grad_out,
      T* grad_x,
      A* grad_weight) {
    const V offset = V::broadcast(A(args.weight_offset));
    V square = V::zero();
    V product = V::zero();
    for_each_vector<T>(
        args.width, [&](int64_t i, int count) __attribute__((always_inline)) {
          const V value = load_count(x + i, count);
          square += value * value;
          product += load_count(grad_out + i, count) * weight_at(weight, offset, i, count) * value;
        });
    const A width = A(args.width);
    const A r = A(1) / square_root(reduce_add(square) / width + A(args.eps));
    const V inverse = V::broadcast(r);
    const V pull = V::broadcast(r * r * (reduce_add(product) / width));
    for_each_vector<T>(
        args.width, [&](int64_t i, int count) __attribute__((always_inline)) {
          const V value = load_count(x + i, count);
          const V grad = load_count(grad_out + i, count);
          if (grad_x != nullptr) {
            const V g = grad * weight_at(weight, offset, i, count);
            store_count(grad_x + i, inverse * (g - value * pull), count);
          }
          if (grad_weight != nullptr) {
            const V sum = load_count(grad_weight + i, count) + grad * (value * inverse);
            store_count(grad_weight + i, sum, count);
          }
        });
  }
};

template <class T>
SLUICE_INLINE T* row_of(T* base, const RowStrides& strides, int64_t b, int64_t h, int64_t t) {
  return base + b * strides.batch + h * strides.head + t * strides.token;
}

void rms_norm_forward(CpuContext& context, const RmsNormForward& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    const auto* x = static_cast<const T*>(args.x);
    const auto* weight = static_cast<const T*>(args.weight);
    auto* out = static_cast<T*>(args.out);
    const int64_t rows = args.batch * args.tokens;
    for_each_row_chunk(
        context.threads, rows, args.heads * args.width, [&](int64_t first, int64_t last, int64_t) {
          for (int64_t row = first; row < last; ++row) {
            const int64_t b = row / args.tokens;
            const int64_t t = row % args.tokens;
            for (int64_t h = 0; h < args.heads; ++h) {
              RmsNorm<T>::forward_row(
                  args,
                  row_of(x, args.x_strides, b, h, t),
                  weight != nullptr ? weight + h * args.weight_head_stride : nullptr,
                  row_of(out, args.out_strides, b, h, t));
            }
          }
        });
  });
}

void rms_norm_backward(CpuContext& context, const RmsNormBackward& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    using A = Accumulator<T>;
    const auto* x = static_cast<const T*>(args.x);
    const auto* weight = static_cast<const T*>(args.weight);
    const auto* grad_out = static_cast<const T*>(args.grad_out);
    auto* grad_x = static_cast<T*>(args.grad_x);
    auto* partials = args.grad_weight != nullptr ? static_cast<A*>(args.scratch) : nullptr;
    const int64_t rows = args.batch * args.tokens;
    const int64_t row_width = args.heads * args.width;
    const int64_t weights = args.weight_head_stride == 0 ? args.width : row_width;
    for_each_row_chunk(
        context.threads, rows, row_width, [&](int64_t first, int64_t last, int64_t chunk) {
          A* partial = partials != nullptr ? partials + chunk * weights : nullptr;
          for (int64_t i = 0; partial != nullptr && i < weights; ++i) partial[i] = A(0);
          for (int64_t row = first; row < last; ++row) {
            const int64_t b = row / args.tokens;
            const int64_t t = row % args.tokens;
            for (int64_t h = 0; h < args.heads; ++h) {
              const int64_t weight_row = h * args.weight_head_stride;
              RmsNorm<T>::backward_row(
                  args,
                  row_of(x, args.x_strides, b, h, t),
                  weight != nullptr ? weight + weight_row : nullptr,
                  row_of(grad_out, args.grad_out_strides, b, h, t),
                  grad_x != nullptr ? row_of(grad_x, args.grad_x_strides, b, h, t) : nullptr,
                  partial != nullptr ? partial + weight_row : nullptr);
            }
          }
        });
    if (partials != nullptr) {
      sum_partials(
          partials, row_chunks(rows, row_width), weights, static_cast<T*>(args.grad_weight));
    }
  });
}

}  // namespace sluice::kernels::SLUICE_ISA

#if defined(SLUICE_ISA_IS_BASELINE)
namespace sluice::kernels {

size_t rms_norm_backward_scratch_bytes(const RmsNormBackward& args) {
  if (args.grad_weight == nullptr) return 0;
  const int64_t row_width = args.heads * args.width;
  const int64_t weights = args.weight_head_stride == 0 ? args.width : row_width;
  const size_t element = args.dtype == DType::f64 ? sizeof(double) : sizeof(float);
  return size_t(row_chunks(args.batch * args.tokens, row_width) * weights) * element;
}

}  // namespace sluice::kernels
#endif

SLUICE_DISPATCH(rms_norm_forward, RmsNormForward)
SLUICE_DISPATCH(rms_norm_backward, RmsNormBackward)
