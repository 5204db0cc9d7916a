#include "kernels/compare.h"

namespace sluice::kernels {
namespace {

template <class T, class Compare>
void compare_typed(CpuContext& context, const CompareArgs& args, Compare compare) {
  const auto* a = static_cast<const T*>(args.a);
  const auto* b = static_cast<const T*>(args.b);
  const auto [out_step, a_step, b_step] = args.loop.inner_stride;
  for_each_run(context.threads, args.loop, [&](const auto& offset, int64_t count) {
    uint8_t* to = args.out + offset[0];
    const T* left = a + offset[1];
    const T* right = b + offset[2];
    if (out_step == 1 && a_step == 1 && b_step == 1) {
      for (int64_t i = 0; i < count; ++i) to[i] = compare(left[i], right[i]);
    } else if (out_step == 1 && a_step == 1 && b_step == 0) {
      const T value = *right;
      for (int64_t i = 0; i < count; ++i) to[i] = compare(left[i], value);
    } else {
      for (int64_t i = 0; i < count; ++i) {
        to[i * out_step] = compare(left[i * a_step], right[i * b_step]);
      }
    }
  });
}

}  // namespace

void compare(CpuContext& context, const CompareArgs& args) {
  dispatch_any(args.dtype, [&]<class T>() {
    switch (args.comparison) {
      case Comparison::equal:
        return compare_typed<T>(context, args, [](T a, T b) { return uint8_t(a == b); });
      case Comparison::less:
        return compare_typed<T>(context, args, [](T a, T b) { return uint8_t(a < b); });
      case Comparison::less_equal:
        return compare_typed<T>(context, args, [](T a, T b) { return uint8_t(a <= b); });
    }
  });
}

}  // namespace sluice::kernels
