// Launchers of the gamma sampler and its derivative: elementwise, one element some 100 to 500 ns.
#include "kernels/gamma.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kChunk = 1024;

template <class Body>
void for_each_element(CpuContext& context, int64_t count, Body&& body) {
  parallel_for(context.threads, (count + kChunk - 1) / kChunk, [&](int64_t chunk) {
    const int64_t end = (chunk + 1) * kChunk < count ? (chunk + 1) * kChunk : count;
    for (int64_t i = chunk * kChunk; i < end; ++i) body(i);
  });
}

}  // namespace

void gamma_log_sample(CpuContext& context, const GammaLogSample& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    const auto* alpha = static_cast<const T*>(args.alpha);
    for_each_element(context, args.count, [&](int64_t i) {
      args.log_z[i] =
          gamma_log_draw(static_cast<double>(alpha[i]), args.key, static_cast<uint64_t>(i));
    });
  });
}

void gamma_log_sample_backward(CpuContext& context, const GammaLogSampleBackward& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    const auto* alpha = static_cast<const T*>(args.alpha);
    const auto* grad = static_cast<const T*>(args.grad);
    auto* grad_alpha = static_cast<T*>(args.grad_alpha);
    for_each_element(context, args.count, [&](int64_t i) {
      const double m = gamma_log_derivative(static_cast<double>(alpha[i]), args.log_z[i]);
      grad_alpha[i] = static_cast<T>(static_cast<Accumulator<T>>(static_cast<double>(grad[i]) * m));
    });
  });
}

}  // namespace sluice::kernels
