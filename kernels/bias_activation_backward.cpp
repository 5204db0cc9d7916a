// Rows are walked whole, as they lie in memory; the column sums of a chunk stay in L1 beside them.
#include "kernels/bias_activation_backward.h"

#include "kernels/simd/activation.h"
#include "kernels/simd/dispatch.h"
#include "kernels/simd/rows.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

// Rows [first, last); their sum goes to `sums` unless null.
template <class T>
void backward_rows(
    const BiasActivationBackward& args, int64_t first, int64_t last, Accumulator<T>* sums) {
  using V = Vec<Accumulator<T>>;
  for (int64_t i = 0; sums != nullptr && i < args.columns; ++i) sums[i] = 0;
  for (int64_t row = first; row < last; ++row) {
    const T* grad = static_cast<const T*>(args.grad_out) + row * args.grad_out_row_stride;
    const int64_t dense = row * args.columns;
    for_each_vector<T>(
        args.columns, [&](int64_t i, int count) __attribute__((always_inline)) {
          V value = load_count(grad + i, count);
          if (args.activation != Activation::none) {
            const T* pre = static_cast<const T*>(args.pre_activation) + dense;
            value *= activation_slope(args.activation, load_count(pre + i, count));
          }
          if (args.grad_pre != nullptr) {
            store_count(static_cast<T*>(args.grad_pre) + dense + i, value, count);
          }
          if (sums != nullptr) {
            store_count(sums + i, load_count(sums + i, count) + value, count);
          }
        });
  }
}

}  // namespace

void bias_activation_backward(CpuContext& context, const BiasActivationBackward& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    using A = Accumulator<T>;
    A* partials = args.grad_bias != nullptr ? static_cast<A*>(args.scratch) : nullptr;
    for_each_row_chunk(
        context.threads, args.rows, args.columns, [&](int64_t first, int64_t last, int64_t chunk) {
          backward_rows<T>(
              args, first, last, partials != nullptr ? partials + chunk * args.columns : nullptr);
        });
    if (partials == nullptr) return;
    const int64_t chunks = row_chunks(args.rows, args.columns);
    sum_partials<T>(partials, chunks, args.columns, static_cast<T*>(args.grad_bias));
  });
}

}  // namespace sluice::kernels::SLUICE_ISA

#if defined(SLUICE_ISA_IS_BASELINE)
namespace sluice::kernels {

size_t bias_activation_backward_scratch_bytes(const BiasActivationBackward& args) {
  if (args.grad_bias == nullptr) return 0;
  const size_t size = args.dtype == DType::f64 ? sizeof(double) : sizeof(float);
  return size_t(row_chunks(args.rows, args.columns) * args.columns) * size;
}

}  // namespace sluice::kernels
#endif

SLUICE_DISPATCH(bias_activation_backward, BiasActivationBackward)
