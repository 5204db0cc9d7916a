// A thread takes a run of rows. The variance is taken around the mean (two passes over a row in
// L1): E[x^2] - E[x]^2 cancels in f32. Weight gradients go to one partial buffer per run.
#include "kernels/layer_norm.h"

#include "kernels/simd/dispatch.h"
#include "kernels/simd/rows.h"

namespace sluice::kernels::SLUICE_ISA {

template <class T>
struct LayerNorm {
  using A = Accumulator<T>;
  using V = Vec<A>;

  static SLUICE_INLINE A inverse_deviation(A variance, double eps) {
    if constexpr (sizeof(A) == 8)
      return 1.0 / __builtin_sqrt(variance + eps);
    else
      return 1.0f / __builtin_sqrtf(variance + static_cast<float>(eps));
  }

  static SLUICE_INLINE void forward_row(const LayerNormForward& args, int64_t row) {
    const T* x = static_cast<const T*>(args.x) + row * args.width;
    const auto* weight = static_cast<const T*>(args.weight);
    const auto* bias = static_cast<const T*>(args.bias);
    T* out = static_cast<T*>(args.out) + row * args.width;
    V sum = V::zero();
    for_each_vector<T>(
        args.width, [&](int64_t i, int count) __attribute__((always_inline)) {
          sum += load_count(x + i, count);
        });
    const A mean = reduce_add(sum) / A(args.width);
    const V center = V::broadcast(mean);
    V square = V::zero();
    for_each_vector<T>(
        args.width, [&](int64_t i, int count) __attribute__((always_inline)) {
          // Lanes past the end read as the mean, so that they add nothing.
          const V value = count == kLanesOf<T> ? load(x + i) : load_partial(x + i, count, mean);
          square += (value - center) * (value - center);
        });
    const A inverse = inverse_deviation(reduce_add(square) / A(args.width), args.eps);
    const V scale = V::broadcast(inverse);
    for_each_vector<T>(
        args.width, [&](int64_t i, int count) __attribute__((always_inline)) {
          V value = (load_count(x + i, count) - center) * scale;
          if (weight != nullptr) value *= load_count(weight + i, count);
          if (bias != nullptr) value += load_count(bias + i, count);
          store_count(out + i, value, count);
        });
    auto* statistics = static_cast<A*>(args.statistics) + 2 * row;
    statistics[0] = mean;
    statistics[1] = inverse;
  }

  // With y = (x - mean) * r and g = grad_out * weight:
  // grad_x = r * (g - mean(g) - y * mean(g * y)), grad_weight += grad_out * y, grad_bias +=
  // grad_out.
  static SLUICE_INLINE void backward_row(
      const LayerNormBackward& args, int64_t row, A* grad_weight, A* grad_bias) {
    const T* x = static_cast<const T*>(args.x) + row * args.width;
    const auto* weight = static_cast<const T*>(args.weight);
    const T* grad_out = static_cast<const T*>(args.grad_out) + row * args.width;
    const auto* statistics = static_cast<const A*>(args.statistics) + 2 * row;
    const V center = V::broadcast(statistics[0]);
    const V scale = V::broadcast(statistics[1]);
    V sum = V::zero();
    V product = V::zero();
    for_each_vector<T>(
        args.width, [&](int64_t i, int count) __attribute__((always_inline)) {
          const V y = (load_count(x + i, count) - center) * scale;
          const V grad = load_count(grad_out + i, count);
          const V g = weight != nullptr ? grad * load_count(weight + i, count) : grad;
          sum += g;
          product += g * y;
          if (grad_weight != nullptr) {
            store_count(grad_weight + i, load_count(grad_weight + i, count) + grad * y, count);
          }
          if (grad_bias != nullptr) {
            store_count(grad_bias + i, load_count(grad_bias + i, count) + grad, count);
          }
        });
    if (args.grad_x == nullptr) return;
    T* grad_x = static_cast<T*>(args.grad_x) + row * args.width;
    const V mean_g = V::broadcast(reduce_add(sum) / A(args.width));
    const V mean_gy = V::broadcast(reduce_add(product) / A(args.width));
    for_each_vector<T>(
        args.width, [&](int64_t i, int count) __attribute__((always_inline)) {
          const V y = (load_count(x + i, count) - center) * scale;
          const V grad = load_count(grad_out + i, count);
          const V g = weight != nullptr ? grad * load_count(weight + i, count) : grad;
          store_count(grad_x + i, scale * (g - mean_g - y * mean_gy), count);
        });
  }
};

void layer_norm_forward(CpuContext& context, const LayerNormForward& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    for_each_row_chunk(
        context.threads, args.rows, args.width, [&](int64_t first, int64_t last, int64_t) {
          for (int64_t row = first; row < last; ++row) LayerNorm<T>::forward_row(args, row);
        });
  });
}

void layer_norm_backward(CpuContext& context, const LayerNormBackward& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    using A = Accumulator<T>;
    const int64_t chunks = row_chunks(args.rows, args.width);
    // Scratch: weight partials (chunks, width), then bias partials, each present when wanted.
    A* weights = args.grad_weight != nullptr ? static_cast<A*>(args.scratch) : nullptr;
    A* biases = nullptr;
    if (args.grad_bias != nullptr) {
      biases = static_cast<A*>(args.scratch) + (weights != nullptr ? chunks * args.width : 0);
    }
    for_each_row_chunk(
        context.threads, args.rows, args.width, [&](int64_t first, int64_t last, int64_t chunk) {
          A* weight = weights != nullptr ? weights + chunk * args.width : nullptr;
          A* bias = biases != nullptr ? biases + chunk * args.width : nullptr;
          for (int64_t i = 0; weight != nullptr && i < args.width; ++i) weight[i] = A(0);
          for (int64_t i = 0; bias != nullptr && i < args.width; ++i) bias[i] = A(0);
          for (int64_t row = first; row < last; ++row) {
            LayerNorm<T>::backward_row(args, row, weight, bias);
          }
        });
    if (weights != nullptr) {
      sum_partials(weights, chunks, args.width, static_cast<T*>(args.grad_weight));
    }
    if (biases != nullptr) {
      sum_partials(biases, chunks, args.width, static_cast<T*>(args.grad_bias));
    }
  });
}

}  // namespace sluice::kernels::SLUICE_ISA

#if defined(SLUICE_ISA_IS_BASELINE)
namespace sluice::kernels {

size_t layer_norm_backward_scratch_bytes(const LayerNormBackward& args) {
  const int64_t buffers = int64_t(args.grad_weight != nullptr) + int64_t(args.grad_bias != nullptr);
  const size_t element = args.dtype == DType::f64 ? sizeof(double) : sizeof(float);
  return size_t(buffers * row_chunks(args.rows, args.width) * args.width) * element;
}

}  // namespace sluice::kernels
#endif

SLUICE_DISPATCH(layer_norm_forward, LayerNormForward)
SLUICE_DISPATCH(layer_norm_backward, LayerNormBackward)
