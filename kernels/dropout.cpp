#include "kernels/dropout.h"

#include "engine/strided.h"
#include "kernels/simd/dispatch.h"
#include "kernels/simd/philox.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

constexpr int kBlock = 256;

template <class T>
void drop_block(const Dropout& args, int64_t first, int count) {
  alignas(64) uint32_t words[kBlock];
  for (int i = 0; i < count; i += 4 * kPhiloxLanes) {
    philox_words(args.key, uint64_t(first + i) / 4, words + i);
  }
  const T* x = static_cast<const T*>(args.x) + first;
  T* out = static_cast<T*>(args.out) + first;
  const auto scale = static_cast<Accumulator<T>>(args.scale);
  for (int i = 0; i < count; ++i) {
    const Accumulator<T> kept = scale * static_cast<Accumulator<T>>(x[i]);
    out[i] = static_cast<T>(words[i] >> 9 >= args.threshold ? kept : Accumulator<T>(0));
  }
}

}  // namespace

void dropout(CpuContext& context, const Dropout& args) {
  const int64_t chunks = (args.count + kParallelElements - 1) / kParallelElements;
  dispatch_floating(args.dtype, [&]<class T>() {
    parallel_for(context.threads, chunks, [&](int64_t chunk) {
      const int64_t end = (chunk + 1) * kParallelElements;
      const int64_t last = end < args.count ? end : args.count;
      for (int64_t i = chunk * kParallelElements; i < last; i += kBlock) {
        drop_block<T>(args, i, last - i < kBlock ? int(last - i) : kBlock);
      }
    });
  });
}

}  // namespace sluice::kernels::SLUICE_ISA

SLUICE_DISPATCH(dropout, Dropout)
