#include "kernels/binary.h"

#include "kernels/binary_functions.h"
#include "kernels/simd/dispatch.h"
#include "kernels/simd/elementwise.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

template <class T, class F>
void apply(CpuContext& context, const BinaryArgs& args) {
  using V = Vec<Accumulator<T>>;
  map<T, 2>(
      context.threads,
      static_cast<T*>(args.out),
      {static_cast<const T*>(args.a), static_cast<const T*>(args.b)},
      args.loop,
      [](V a, V b) { return F::value(a, b); });
}

}  // namespace

void binary(CpuContext& context, const BinaryArgs& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    switch (args.function) {
      case BinaryFunction::add:
        return apply<T, Add>(context, args);
      case BinaryFunction::sub:
        return apply<T, Sub>(context, args);
      case BinaryFunction::mul:
        return apply<T, Mul>(context, args);
      case BinaryFunction::div:
        return apply<T, Div>(context, args);
      case BinaryFunction::maximum:
        return apply<T, Maximum>(context, args);
      case BinaryFunction::minimum:
        return apply<T, Minimum>(context, args);
    }
  });
}

}  // namespace sluice::kernels::SLUICE_ISA

SLUICE_DISPATCH(binary, BinaryArgs)
