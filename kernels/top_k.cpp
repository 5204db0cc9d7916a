// Insertion into the k best so far, held in the output row: one comparison per score once they are
// found, which for k much smaller than the number of experts is nearly always.
#include "kernels/top_k.h"

namespace sluice::kernels {
namespace {

template <class Body>
void for_each_row(CpuContext& context, int64_t rows, int64_t experts, Body&& body) {
  const int64_t step = 8192 / (experts + 1) + 1;
  parallel_for(context.threads, (rows + step - 1) / step, [&](int64_t chunk) {
    const int64_t end = (chunk + 1) * step < rows ? (chunk + 1) * step : rows;
    for (int64_t row = chunk * step; row < end; ++row) body(row);
  });
}

// Whether a ranks strictly before b. Scores come by rising index, so ties stay in that order.
template <class A>
bool before(A a, A b) {
  return a > b || (b != b && a == a);
}

}  // namespace

void top_k(CpuContext& context, const TopK& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    using A = Accumulator<T>;
    for_each_row(context, args.rows, args.experts, [&](int64_t row) {
      const T* scores = static_cast<const T*>(args.scores) + row * args.experts;
      T* values = static_cast<T*>(args.values) + row * args.k;
      int32_t* ids = args.ids + row * args.k;
      int found = 0;
      for (int64_t e = 0; e < args.experts; ++e) {
        const auto score = static_cast<A>(scores[e]);
        if (found == args.k && !before(score, static_cast<A>(values[found - 1]))) {
          continue;
        }
        int place = found < args.k ? found++ : found - 1;
        for (; place > 0 && before(score, static_cast<A>(values[place - 1])); --place) {
          values[place] = values[place - 1];
          ids[place] = ids[place - 1];
        }
        values[place] = scores[e];
        ids[place] = static_cast<int32_t>(e);
      }
    });
  });
}

void top_k_backward(CpuContext& context, const TopKBackward& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    for_each_row(context, args.rows, args.experts, [&](int64_t row) {
      T* grad_scores = static_cast<T*>(args.grad_scores) + row * args.experts;
      const T* grad_values = static_cast<const T*>(args.grad_values) + row * args.k;
      for (int64_t e = 0; e < args.experts; ++e) grad_scores[e] = T(0.0f);
      for (int j = 0; j < args.k; ++j) grad_scores[args.ids[row * args.k + j]] = grad_values[j];
    });
  });
}

}  // namespace sluice::kernels
