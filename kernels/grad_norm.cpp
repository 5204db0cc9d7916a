// Squares of f32 are exact in f64 and do not overflow, so no scaling is needed.
#include "kernels/grad_norm.h"

#include "kernels/simd/dispatch.h"
#include "kernels/tensor_list.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

template <class T>
double sum_of_squares(const T* data, int64_t count) {
  constexpr int kSums = 32;  // in flight, to hide the latency of the addition
  double sum[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (int lane = 0; lane < kSums; ++lane) {
      const auto value = static_cast<double>(static_cast<Accumulator<T>>(data[i + lane]));
      sum[lane] += value * value;
    }
  }
  for (int lane = 0; i < count; ++i, ++lane) {
    const auto value = static_cast<double>(static_cast<Accumulator<T>>(data[i]));
    sum[lane] += value * value;
  }
  for (int half = kSums / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) sum[lane] += sum[lane + half];
  }
  return sum[0];
}

}  // namespace

void grad_norm(CpuContext& context, const GradNormArgs& args) {
  parallel_for(context.threads, args.chunks, [&](int64_t chunk) {
    with_list_chunk(
        args.tensors,
        args.size,
        chunk,
        [&](const GradNormTensor& tensor, int64_t begin, int64_t end) {
          dispatch_floating(tensor.dtype, [&]<class T>() {
            args.partials[chunk] =
                sum_of_squares(static_cast<const T*>(tensor.data) + begin, end - begin);
          });
        });
  });
  double total = 0;
  for (int64_t chunk = 0; chunk < args.chunks; ++chunk) total += args.partials[chunk];
  *args.norm = __builtin_sqrt(total);
}

}  // namespace sluice::kernels::SLUICE_ISA

SLUICE_DISPATCH(grad_norm, GradNormArgs)
