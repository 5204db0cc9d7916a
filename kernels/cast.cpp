// Plain loops that the compiler vectorises; dispatched because converting bf16 with SSE2 alone is
// slower than memory.
#include "kernels/cast.h"

#include "kernels/simd/dispatch.h"
#include "kernels/simd/simd.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

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
