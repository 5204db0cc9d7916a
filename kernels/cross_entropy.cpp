// A thread takes a run of rows and reads each twice while it lies in L1 or L2: for its maximum and
// for its sum of exponentials. Sums over rows are made in f64, chunk by chunk, in order.
#include "kernels/cross_entropy.h"

#include "kernels/simd/dispatch.h"
#include "kernels/simd/ids.h"
#include "kernels/simd/rows.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

SLUICE_INLINE float logarithm(float x) { return __builtin_logf(x); }
SLUICE_INLINE double logarithm(double x) { return __builtin_log(x); }

template <class T>
const T* row_of(const CrossEntropyRows& args, int64_t row) {
  return static_cast<const T*>(args.logits) + row * args.logits_row_stride;
}

template <class T>
Accumulator<T> log_sum_exp(const T* x, int64_t classes) {
  using A = Accumulator<T>;
  using V = Vec<A>;
  constexpr A kInfinity = A(__builtin_inf());
  V top = V::broadcast(-kInfinity);
  for_each_vector<T>(
      classes, [&](int64_t i, int count) __attribute__((always_inline)) {
        top = max(top, count == kLanesOf<T> ? load(x + i) : load_partial(x + i, count, -kInfinity));
      });
  const A largest = reduce_max(top);
  if (largest == -kInfinity) {
    // All -inf, where the difference below would be NaN; or NaN beside -inf, which max drops.
    for (int64_t i = 0; i < classes; ++i) {
      if (A(x[i]) != -kInfinity) return A(x[i]);
    }
    return -kInfinity;
  }
  const V shift = V::broadcast(largest);
  V sum = V::zero();
  for_each_vector<T>(
      classes, [&](int64_t i, int count) __attribute__((always_inline)) {
        sum += exp(
            (count == kLanesOf<T> ? load(x + i) : load_partial(x + i, count, -kInfinity)) - shift);
      });
  return largest + logarithm(reduce_add(sum));
}

// Losses of rows [first, last); returns their sum.
template <class T, class Id>
double forward_rows(const CrossEntropyForward& args, int64_t first, int64_t last) {
  using A = Accumulator<T>;
  const Id* targets = static_cast<const Id*>(args.targets);
  double total = 0;
  for (int64_t row = first; row < last; ++row) {
    A loss = 0;
    if (targets[row] != args.ignored) {
      const T* x = row_of<T>(args, row);
      const A lse = log_sum_exp(x, args.classes);
      static_cast<A*>(args.lse)[row] = lse;
      const bool impossible = lse == -A(__builtin_inf());
      loss = impossible ? -lse : lse - A(x[targets[row]]) + A(args.z_loss) * lse * lse;
    }
    if (args.losses != nullptr) static_cast<A*>(args.losses)[row] = loss;
    total += double(loss);
  }
  return total;
}

template <class T, class Id>
void backward_row(const CrossEntropyBackward& args, int64_t row, double divisor) {
  using A = Accumulator<T>;
  using V = Vec<A>;
  T* out = static_cast<T*>(args.grad_logits) + row * args.classes;
  const int64_t target = static_cast<const Id*>(args.targets)[row];
  const bool ignored = target == args.ignored;
  const A lse = ignored ? A(0) : static_cast<const A*>(args.lse)[row];
  if (ignored || lse == -A(__builtin_inf())) {
    for (int64_t i = 0; i < args.classes; ++i) out[i] = T(0.0f);
    return;
  }
  const T* x = row_of<T>(args, row);
  const A grad = static_cast<const A*>(args.grad_losses)[args.grad_total ? 0 : row] / A(divisor);
  const V scale = V::broadcast(grad * (A(1) + 2 * A(args.z_loss) * lse));
  const V shift = V::broadcast(lse);
  for_each_vector<T>(
      args.classes, [&](int64_t i, int count) __attribute__((always_inline)) {
        store_count(out + i, exp(load_count(x + i, count) - shift) * scale, count);
      });
  // Written once more from the unrounded value, so that bf16 rounds only once.
  const A at_target = exp(V::broadcast(A(x[target])) - shift)[0] * scale[0];
  out[target] = T(at_target - grad);
}

}  // namespace

void cross_entropy_forward(CpuContext& context, const CrossEntropyForward& args) {
  auto* partials = static_cast<double*>(args.scratch);
  dispatch_floating(args.dtype, [&]<class T>() {
    dispatch_ids(args.id_dtype, [&]<class Id>() {
      const Id* targets = static_cast<const Id*>(args.targets);
      const IdScan scan = scan_ids(targets, args.rows, args.classes, args.ignored);
      *args.kept = scan.kept;
      *args.first_outside = scan.first_outside;
      if (scan.first_outside >= 0) return;
      for_each_row_chunk(
          context.threads,
          args.rows,
          args.classes,
          [&](int64_t first, int64_t last, int64_t chunk) {
            partials[chunk] = forward_rows<T, Id>(args, first, last);
          });
      if (args.total == nullptr) return;
      double total = 0;
      const int64_t chunks = row_chunks(args.rows, args.classes);
      for (int64_t chunk = 0; chunk < chunks; ++chunk) total += partials[chunk];
      if (args.mean && scan.kept > 0) total /= double(scan.kept);
      *static_cast<Accumulator<T>*>(args.total) = static_cast<Accumulator<T>>(total);
    });
  });
}

void cross_entropy_backward(CpuContext& context, const CrossEntropyBackward& args) {
  // Without a row kept no row divides by this.
  const double divisor = args.kept != nullptr ? double(*args.kept) : 1.0;
  dispatch_floating(args.dtype, [&]<class T>() {
    dispatch_ids(args.id_dtype, [&]<class Id>() {
      for_each_row_chunk(
          context.threads, args.rows, args.classes, [&](int64_t first, int64_t last, int64_t) {
            for (int64_t row = first; row < last; ++row) backward_row<T, Id>(args, row, divisor);
          });
    });
  });
}

}  // namespace sluice::kernels::SLUICE_ISA

#if defined(SLUICE_ISA_IS_BASELINE)
namespace sluice::kernels {

size_t cross_entropy_forward_scratch_bytes(const CrossEntropyForward& args) {
  return size_t(row_chunks(args.rows, args.classes)) * sizeof(double);
}

}  // namespace sluice::kernels
#endif

SLUICE_DISPATCH(cross_entropy_forward, CrossEntropyForward)
SLUICE_DISPATCH(cross_entropy_backward, CrossEntropyBackward)
