// Plain loops that the compiler vectorises; dispatched because converting bf16 with SSE2 alone is
// slower than memory.
#include "kernels/cast.h"

#include <limits>

#include "kernels/simd/dispatch.h"
#include "kernels/simd/simd.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

template <class To, class From>
SLUICE_INLINE To convert(From value) {
  if constexpr (std::is_same_v<To, bfloat16>) {
    return bfloat16(static_cast<float>(value));
  } else if constexpr (std::is_integral_v<To> && !std::is_integral_v<From>) {
    // A float outside the range of To has no defined conversion in C++.
    constexpr auto low = static_cast<double>(std::numeric_limits<To>::min());
    constexpr auto high = static_cast<double>(std::numeric_limits<To>::max());
    const auto wide = static_cast<double>(value);
    if (wide != wide) return To(0);
    if (wide <= low) return std::numeric_limits<To>::min();
    if (wide >= high) return std::numeric_limits<To>::max();
    return static_cast<To>(wide);
  } else {
    return static_cast<To>(value);
  }
}

template <class To, class From>
void cast_typed(CpuContext& context, const CastArgs& args) {
  auto* to = static_cast<To*>(args.to);
  const auto* from = static_cast<const From*>(args.from);
  const int64_t to_step = args.loop.inner_stride[0];
  const int64_t from_step = args.loop.inner_stride[1];
  for_each_run(context.threads, args.loop, [&](const auto& offset, int64_t count) {
    To* out = to + offset[0];
    const From* in = from + offset[1];
    if (to_step == 1 && from_step == 1) {
      for (int64_t i = 0; i < count; ++i) out[i] = convert<To>(in[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) out[i * to_step] = convert<To>(in[i * from_step]);
    }
  });
}

}  // namespace

void cast(CpuContext& context, const CastArgs& args) {
  dispatch_any(args.to_dtype, [&]<class To>() {
    dispatch_any(args.from_dtype, [&]<class From>() { cast_typed<To, From>(context, args); });
  });
}

}  // namespace sluice::kernels::SLUICE_ISA

SLUICE_DISPATCH(cast, CastArgs)
