// One pass over the rows; a row is copied while its residual is squared and summed.
#include "kernels/router_features.h"

#include "kernels/simd/dispatch.h"
#include "kernels/simd/math.h"
#include "kernels/simd/rows.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

// Keeps the logarithm of a row of zeros finite.
constexpr double kLeastSquare = 1e-12;

template <class T>
SLUICE_INLINE void features_row(
    const RouterFeatures& args, int64_t t, const T* residual, const T* normed, T* out) {
  using A = Accumulator<T>;
  using V = Vec<A>;
  V square = V::zero();
  for_each_vector<T>(
      args.width, [&](int64_t i, int count) __attribute__((always_inline)) {
        const V value = load_count(residual + i, count);
        square += value * value;
        store_count(out + i, load_count(normed + i, count), count);
      });
  const A mean = reduce_add(square) / A(args.width > 0 ? args.width : 1);
  const V norm = log(V::broadcast(mean + A(kLeastSquare))) * V::broadcast(A(0.5));
  const V place =
      log(V::broadcast(A(1 + args.offset + t))) * V::broadcast(A(1.0 / args.log_context));
  store_partial(out + args.width, norm, 1);
  store_partial(out + args.width + 1, place, 1);
}

}  // namespace

void router_features(CpuContext& context, const RouterFeatures& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    const auto* residual = static_cast<const T*>(args.residual);
    const auto* normed = static_cast<const T*>(args.normed);
    auto* out = static_cast<T*>(args.out);
    for_each_row_chunk(
        context.threads,
        args.batch * args.tokens,
        args.width,
        [&](int64_t first, int64_t last, int64_t) {
          for (int64_t row = first; row < last; ++row) {
            features_row(
                args,
                row % args.tokens,
                residual + row * args.width,
                normed + row * args.width,
                out + row * (args.width + 2));
          }
        });
  });
}

}  // namespace sluice::kernels::SLUICE_ISA

SLUICE_DISPATCH(router_features, RouterFeatures)
