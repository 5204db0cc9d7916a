// One pass over memory each way: a row of the gradient is read from L1 for every expert after the
// first.
#include "kernels/mix_experts.h"

#include "kernels/simd/dispatch.h"
#include "kernels/simd/row_bundles.h"
#include "kernels/simd/rows.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

// Calls body.template operator()<T, W>() with the types of outputs and weights.
template <class Body>
SLUICE_INLINE void dispatch_mix(DType dtype, DType weights_dtype, Body body) {
  dispatch_floating(dtype, [&]<class T>() {
    if (weights_dtype == dtype)
      body.template operator()<T, T>();
    else
      body.template operator()<T, float>();
  });
}

template <class T, class W>
void mix_row(const MixExperts& args, int64_t row) {
  using A = Accumulator<T>;
  const W* weights = static_cast<const W*>(args.weights) + row * args.experts;
  T* out = static_cast<T*>(args.out) + row * args.width;
  for_each_vector<T>(
      args.width, [&](int64_t i, int count) __attribute__((always_inline)) {
        auto sum = Vec<A>::zero();
        for (int e = 0; e < args.experts; ++e) {
          const T* from = static_cast<const T*>(args.outputs[e]) + row * args.width + i;
          sum += Vec<A>::broadcast(A(weights[e])) * load_count(from, count);
        }
        store_count(out + i, sum, count);
      });
}

template <class T>
Accumulator<T> dot(const T* a, const T* b, int64_t width) {
  using V = Vec<Accumulator<T>>;
  constexpr int kLanes = V::kLanes;
  V sum[4] = {};
  int64_t i = 0;
  for (; i + 4 * kLanes <= width; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j) sum[j] += load(a + i + j * kLanes) * load(b + i + j * kLanes);
  }
  for (; i < width; i += kLanes) {
    const int count = width - i < kLanes ? int(width - i) : kLanes;
    sum[0] += load_count(a + i, count) * load_count(b + i, count);
  }
  return reduce_add((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

template <class T, class W>
void gradient_row(const MixExpertsGradient& args, int64_t row) {
  using A = Accumulator<T>;
  const W* weights = static_cast<const W*>(args.weights) + row * args.experts;
  const T* grad = static_cast<const T*>(args.grad) + row * args.width;
  for (int e = 0; e < args.experts; ++e) {
    if (args.grad_weights != nullptr) {
      const T* output = static_cast<const T*>(args.outputs[e]) + row * args.width;
      W* to = static_cast<W*>(args.grad_weights) + row * args.experts + e;
      *to = static_cast<W>(dot(grad, output, args.width));
    }
    if (args.grad_outputs[e] == nullptr) continue;
    T* to = static_cast<T*>(args.grad_outputs[e]) + row * args.width;
    const auto weight = Vec<A>::broadcast(A(weights[e]));
    for_each_vector<T>(
        args.width, [&](int64_t i, int count) __attribute__((always_inline)) {
          store_count(to + i, weight * load_count(grad + i, count), count);
        });
  }
}

}  // namespace

void mix_experts(CpuContext& context, const MixExperts& args) {
  dispatch_mix(args.dtype, args.weights_dtype, [&]<class T, class W>() {
    for_each_row_bundle(
        context.threads,
        args.rows,
        args.width * (args.experts + 1),
        [&](int64_t first, int64_t last) {
          for (int64_t row = first; row < last; ++row) mix_row<T, W>(args, row);
        });
  });
}

void mix_experts_gradient(CpuContext& context, const MixExpertsGradient& args) {
  dispatch_mix(args.dtype, args.weights_dtype, [&]<class T, class W>() {
    for_each_row_bundle(
        context.threads,
        args.rows,
        args.width * (args.experts + 1),
        [&](int64_t first, int64_t last) {
          for (int64_t row = first; row < last; ++row) gradient_row<T, W>(args, row);
        });
  });
}

}  // namespace sluice::kernels::SLUICE_ISA

SLUICE_DISPATCH(mix_experts, MixExperts)
SLUICE_DISPATCH(mix_experts_gradient, MixExpertsGradient)
