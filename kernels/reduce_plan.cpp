// How a reduction is cut, and the gradient of max: scalar code that needs no vectors.
#include <algorithm>

#include "kernels/reduce.h"

namespace sluice::kernels {
namespace {

// Chunks that a reduction with few outputs is cut into: enough for the threads of a large host.
constexpr int64_t kSegmentChunks = 64;
// Below this extent of r a register along r would be mostly padding.
constexpr int64_t kShortReduction = 16;

int64_t pieces(int64_t total, int64_t piece) { return (total + piece - 1) / piece; }

template <class T>
void max_gradient_typed(CpuContext& context, const MaxGradientArgs& args) {
  const auto* x = static_cast<const T*>(args.x);
  auto* grad_x = static_cast<T*>(args.grad_x);
  const auto* out = static_cast<const T*>(args.out);
  const auto* grad = static_cast<const T*>(args.grad);
  using A = Accumulator<T>;
  auto place = [&](int64_t k, int64_t x_base, int64_t grad_base) {
    const A largest = out[k];
    for (int64_t row = 0; row < args.reduced.rows; ++row) {
      const auto offset = args.reduced.offsets(row);
      for (int64_t i = 0; i < args.reduced.inner; ++i) {
        const A value = x[x_base + offset[0] + i * args.reduced.inner_stride[0]];
        if (value == largest || (value != value)) {
          grad_x[grad_base + offset[1] + i * args.reduced.inner_stride[1]] = grad[k];
          return;
        }
      }
    }
  };
  const int64_t outputs = args.kept.rows * args.kept.inner;
  const int64_t reductions = std::max<int64_t>(1, args.reduced.rows * args.reduced.inner);
  const int64_t bundle = pieces(kParallelElements, reductions);
  parallel_for(context.threads, pieces(outputs, bundle), [&](int64_t chunk) {
    const int64_t last = std::min(outputs, (chunk + 1) * bundle);
    for (int64_t k = chunk * bundle; k < last; ++k) {
      const auto offset = args.kept.offsets(k / args.kept.inner);
      const int64_t at = k % args.kept.inner;
      place(
          k,
          offset[0] + at * args.kept.inner_stride[0],
          offset[1] + at * args.kept.inner_stride[1]);
    }
  });
}

}  // namespace

void plan_reduce(ReduceArgs& args) {
  const int64_t reductions = args.reduced.rows * args.reduced.inner;
  const int64_t inner = args.kept.inner;
  args.columns = reductions < kShortReduction ||
                 (args.kept.inner_stride[0] == 1 && args.reduced.inner_stride[0] != 1);
  const int64_t width = args.columns ? std::min(inner, kReduceColumns) : 1;
  args.blocks = args.kept.rows * (args.columns ? pieces(inner, kReduceColumns) : inner);
  const int64_t work = std::max<int64_t>(1, width * reductions);
  args.segments = 1;
  if (args.blocks > 0 && args.blocks < kSegmentChunks) {
    const int64_t wanted = pieces(kSegmentChunks, args.blocks);
    args.segments = std::clamp<int64_t>(work / kParallelElements, 1, wanted);
  }
  args.segment = pieces(reductions, args.segments);
  // Rounding up may leave the last pieces empty.
  if (args.segment > 0) args.segments = pieces(reductions, args.segment);
  args.bundle = args.segments > 1 ? 1 : pieces(kParallelElements, work);
}

int64_t reduce_scratch_bytes(const ReduceArgs& args) {
  if (args.segments == 1) return 0;
  return args.segments * args.kept.rows * args.kept.inner * int64_t(sizeof(double));
}

void max_gradient(CpuContext& context, const MaxGradientArgs& args) {
  dispatch_floating(args.dtype, [&]<class T>() { max_gradient_typed<T>(context, args); });
}

}  // namespace sluice::kernels
