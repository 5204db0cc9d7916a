// Inverse of the distribution function, one row after another within fixed chunks of rows.
#include "kernels/categorical_sample.h"

#include <limits>

namespace sluice::kernels {
namespace {

template <class T>
int32_t draw(const T* probs, int64_t categories, double u) {
  double total = 0;
  for (int64_t k = 0; k < categories; ++k) {
    const auto p = static_cast<double>(probs[k]);
    if (!(p >= 0)) return -1;
    total += p;
  }
  if (!(total > 0) || total > std::numeric_limits<double>::max()) return -1;
  const double target = u * total;
  double sum = 0;
  int32_t last = -1;  // where rounding of u * total leaves no later category
  for (int64_t k = 0; k < categories; ++k) {
    const auto p = static_cast<double>(probs[k]);
    if (p == 0) continue;
    last = static_cast<int32_t>(k);
    sum += p;
    if (target < sum) break;
  }
  return last;
}

}  // namespace

void categorical_sample(CpuContext& context, const CategoricalSample& args) {
  const int64_t per_chunk = args.categories < 4096 ? 4096 / (args.categories + 1) + 1 : 1;
  dispatch_floating(args.dtype, [&]<class T>() {
    const auto* probs = static_cast<const T*>(args.probs);
    parallel_for(context.threads, (args.rows + per_chunk - 1) / per_chunk, [&](int64_t chunk) {
      const int64_t begin = chunk * per_chunk;
      const int64_t end = begin + per_chunk < args.rows ? begin + per_chunk : args.rows;
      for (int64_t row = begin; row < end; ++row) {
        const auto word = philox4x32(args.key, static_cast<uint64_t>(row));
        const double u = unit_double(word[0], word[1]);
        args.out[row] = draw(probs + row * args.categories, args.categories, u);
      }
    });
  });
}

}  // namespace sluice::kernels
