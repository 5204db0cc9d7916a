// Bound by memory: three streams are read and written, one is read. Plain loops vectorise.
#include "kernels/adamw.h"

#include "kernels/simd/dispatch.h"
#include "kernels/tensor_list.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

SLUICE_INLINE float root(float x) { return __builtin_sqrtf(x); }
SLUICE_INLINE double root(double x) { return __builtin_sqrt(x); }

template <class T>
void update(const AdamWArgs& args, const AdamWTensor& tensor, int64_t begin, int64_t end) {
  using A = Accumulator<T>;
  T* __restrict param = static_cast<T*>(tensor.param);
  const T* __restrict grad = static_cast<const T*>(tensor.grad);
  A* __restrict m = static_cast<A*>(tensor.m);
  A* __restrict v = static_cast<A*>(tensor.v);
  const A scale = A(args.grad_scale), decay = A(args.decay), step = A(args.step_size);
  const A v_scale = A(args.v_scale), eps = A(args.eps);
  const A beta1 = A(args.beta1), rest1 = A(1 - args.beta1);
  const A beta2 = A(args.beta2), rest2 = A(1 - args.beta2);
  for (int64_t i = begin; i < end; ++i) {
    const A g = A(grad[i]) * scale;
    m[i] = beta1 * m[i] + rest1 * g;
    v[i] = beta2 * v[i] + rest2 * g * g;
    param[i] = T(decay * A(param[i]) - step * m[i] / (v_scale * root(v[i]) + eps));
  }
}

}  // namespace

void adamw(CpuContext& context, const AdamWArgs& args) {
  parallel_for(context.threads, args.chunks, [&](int64_t chunk) {
    with_list_chunk(
        args.tensors, args.size, chunk, [&](const AdamWTensor& tensor, int64_t begin, int64_t end) {
          dispatch_floating(tensor.dtype, [&]<class T>() { update<T>(args, tensor, begin, end); });
        });
  });
}

}  // namespace sluice::kernels::SLUICE_ISA

SLUICE_DISPATCH(adamw, AdamWArgs)
