#include "kernels/unary.h"

#include "kernels/simd/dispatch.h"
#include "kernels/simd/elementwise.h"
#include "kernels/unary_functions.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

// Calls body with each function as a type; `body.template operator()<Unary<..>>()`.
template <class Body>
SLUICE_INLINE void dispatch_function(UnaryFunction function, Body body) {
  switch (function) {
    case UnaryFunction::neg:
      return body.template operator()<Unary<UnaryFunction::neg>>();
    case UnaryFunction::exp:
      return body.template operator()<Unary<UnaryFunction::exp>>();
    case UnaryFunction::log:
      return body.template operator()<Unary<UnaryFunction::log>>();
    case UnaryFunction::sqrt:
      return body.template operator()<Unary<UnaryFunction::sqrt>>();
    case UnaryFunction::sigmoid:
      return body.template operator()<Unary<UnaryFunction::sigmoid>>();
    case UnaryFunction::softplus:
      return body.template operator()<Unary<UnaryFunction::softplus>>();
    case UnaryFunction::gelu:
      return body.template operator()<Unary<UnaryFunction::gelu>>();
    case UnaryFunction::gelu_tanh:
      return body.template operator()<Unary<UnaryFunction::gelu_tanh>>();
    case UnaryFunction::silu:
      return body.template operator()<Unary<UnaryFunction::silu>>();
    case UnaryFunction::elu:
      return body.template operator()<Unary<UnaryFunction::elu>>();
    case UnaryFunction::relu:
      return body.template operator()<Unary<UnaryFunction::relu>>();
    case UnaryFunction::square:
      return body.template operator()<Unary<UnaryFunction::square>>();
    case UnaryFunction::abs:
      return body.template operator()<Unary<UnaryFunction::abs>>();
    case UnaryFunction::affine:
      return body.template operator()<Unary<UnaryFunction::affine>>();
    case UnaryFunction::quotient:
      return body.template operator()<Unary<UnaryFunction::quotient>>();
    case UnaryFunction::inverse:
      return body.template operator()<Unary<UnaryFunction::inverse>>();
    case UnaryFunction::at_least:
      return body.template operator()<Unary<UnaryFunction::at_least>>();
    case UnaryFunction::at_most:
      return body.template operator()<Unary<UnaryFunction::at_most>>();
  }
}

template <class T>
auto scalars_of(double alpha, double beta) {
  using V = Vec<Accumulator<T>>;
  return UnaryScalars<V>{V::broadcast(Accumulator<T>(alpha)), V::broadcast(Accumulator<T>(beta))};
}

}  // namespace

void unary(CpuContext& context, const UnaryArgs& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    dispatch_function(args.function, [&]<class F>() {
      using V = Vec<Accumulator<T>>;
      const auto scalars = scalars_of<T>(args.alpha, args.beta);
      map<T, 1>(
          context.threads,
          static_cast<T*>(args.out),
          {static_cast<const T*>(args.x)},
          args.loop,
          [=](V x) { return F::value(x, scalars); });
    });
  });
}

void unary_gradient(CpuContext& context, const UnaryGradientArgs& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    dispatch_function(args.function, [&]<class F>() {
      using V = Vec<Accumulator<T>>;
      const auto scalars = scalars_of<T>(args.alpha, 0);
      if constexpr (requires(V v) { F::gradient(v, v, scalars); }) {
        map<T, 2>(
            context.threads,
            static_cast<T*>(args.grad_x),
            {static_cast<const T*>(args.grad), static_cast<const T*>(args.x)},
            args.loop,
            [=](V grad, V x) { return F::gradient(grad, x, scalars); });
      }
    });
  });
}

}  // namespace sluice::kernels::SLUICE_ISA

SLUICE_DISPATCH(unary, UnaryArgs)
SLUICE_DISPATCH(unary_gradient, UnaryGradientArgs)
