// Elementwise launcher of the gamma function's family. The arithmetic is in the header; dtypes only
// differ in how values are read and rounded.
#include "kernels/special.h"

namespace sluice::kernels {
namespace {

double evaluate(SpecialFunction function, double x) {
  switch (function) {
    case SpecialFunction::log_gamma:
      return log_gamma(x);
    case SpecialFunction::digamma:
      return digamma(x);
    case SpecialFunction::trigamma:
      return trigamma(x);
    case SpecialFunction::tetragamma:
      return tetragamma(x);
  }
  return x;
}

// One value costs about 50 ns, so a chunk is some 100 us of work.
constexpr int64_t kChunk = 2048;

}  // namespace

void special(CpuContext& context, const Special& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    const auto* x = static_cast<const T*>(args.x);
    const auto* scale = static_cast<const T*>(args.scale);
    auto* out = static_cast<T*>(args.out);
    parallel_for(context.threads, (args.count + kChunk - 1) / kChunk, [&](int64_t chunk) {
      const int64_t end = (chunk + 1) * kChunk < args.count ? (chunk + 1) * kChunk : args.count;
      for (int64_t i = chunk * kChunk; i < end; ++i) {
        const double factor = scale != nullptr ? static_cast<double>(scale[i]) : 1.0;
        const double value = evaluate(args.function, static_cast<double>(x[i])) * factor;
        out[i] = static_cast<T>(static_cast<Accumulator<T>>(value));
      }
    });
  });
}

}  // namespace sluice::kernels
