// Two ways through the same loops. Along r: one output at a time, registers hold neighbours in r
// and are added up at the end. Along k ("columns"): registers hold neighbouring outputs and r is
// walked outside, which suits sums over leading axes and very short r. A register sums at most kRun
// terms in f32 before it is added to an f64 total, so the error does not grow with the length.
// Where outputs are too few to share among threads, r is cut into a fixed number of segments whose
// f64 totals are combined in order.
#include "kernels/reduce.h"

#include "kernels/binary_functions.h"
#include "kernels/simd/dispatch.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

constexpr int64_t kRun = 256;

struct Sum {
  static constexpr double kEmpty = 0;
  template <class V>
  static SLUICE_INLINE V combine(V a, V b) {
    return a + b;
  }
  static SLUICE_INLINE double combine(double a, double b) { return a + b; }
};

struct Max {
  static constexpr double kEmpty = -__builtin_inf();
  template <class V>
  static SLUICE_INLINE V combine(V a, V b) {
    return Maximum::value(a, b);
  }
  static SLUICE_INLINE double combine(double a, double b) { return a != a || a > b ? a : b; }
};

template <class T>
SLUICE_INLINE Vec<Accumulator<T>> load_lanes(
    const T* from, int64_t step, int count, Accumulator<T> fill) {
  if (step == 1) {
    return count == Vec<Accumulator<T>>::kLanes ? load(from) : load_partial(from, count, fill);
  }
  auto out = Vec<Accumulator<T>>::broadcast(fill);
  for (int i = 0; i < count; ++i) out.raw[i] = static_cast<Accumulator<T>>(from[i * step]);
  return out;
}

// One (x, y) pair of pointers with its steps along the register; y unused unless kProduct.
template <class T, class F, bool kProduct>
struct Operands {
  using A = Accumulator<T>;
  const T* x;
  const T* y;
  int64_t x_step, y_step;

  SLUICE_INLINE Vec<A> load_at(int64_t x_offset, int64_t y_offset, int count) const {
    auto value = load_lanes(x + x_offset, x_step, count, A(F::kEmpty));
    // Lanes beyond count hold 0 * 0.
    if constexpr (kProduct) value = value * load_lanes(y + y_offset, y_step, count, A(0));
    return value;
  }
};

// Calls body(x_offset, y_offset, count) for the runs of r in [begin, end).
template <class Body>
SLUICE_INLINE void for_each_reduced(
    const StridedLoop<2>& reduced, int64_t begin, int64_t end, Body body) {
  while (begin < end) {
    const int64_t at = begin % reduced.inner;
    const int64_t left = reduced.inner - at;
    const int64_t count = left < end - begin ? left : end - begin;
    const auto offset = reduced.offsets(begin / reduced.inner);
    body(offset[0] + at * reduced.inner_stride[0], offset[1] + at * reduced.inner_stride[1], count);
    begin += count;
  }
}

template <class T, class F, bool kProduct>
double reduce_row(
    const ReduceArgs& args, int64_t x_offset, int64_t y_offset, int64_t begin, int64_t end) {
  using V = Vec<Accumulator<T>>;
  constexpr int kLanes = V::kLanes;
  const Operands<T, F, kProduct> in{
      static_cast<const T*>(args.x) + x_offset,
      static_cast<const T*>(args.y) + (kProduct ? y_offset : 0),
      args.reduced.inner_stride[0],
      args.reduced.inner_stride[1]};
  double total = F::kEmpty;
  for_each_reduced(args.reduced, begin, end, [&](int64_t xo, int64_t yo, int64_t count) {
    for (int64_t run = 0; run < count; run += kRun * kLanes) {
      const int64_t stop = count - run < kRun * kLanes ? count : run + kRun * kLanes;
      V sum[4];
      for (V& s : sum) s = V::broadcast(Accumulator<T>(F::kEmpty));
      int64_t i = run;
      for (; i + 4 * kLanes <= stop; i += 4 * kLanes) {
        for (int j = 0; j < 4; ++j) {
          const int64_t at = i + j * kLanes;
          sum[j] = F::combine(sum[j], in.load_at(xo + at * in.x_step, yo + at * in.y_step, kLanes));
        }
      }
      for (; i < stop; i += kLanes) {
        const int lanes = stop - i < kLanes ? int(stop - i) : kLanes;
        sum[0] = F::combine(sum[0], in.load_at(xo + i * in.x_step, yo + i * in.y_step, lanes));
      }
      const V all = F::combine(F::combine(sum[0], sum[1]), F::combine(sum[2], sum[3]));
      double lanes[kLanes];
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = double(all.raw[lane]);
      for (int half = kLanes / 2; half > 0; half /= 2) {
        for (int lane = 0; lane < half; ++lane) {
          lanes[lane] = F::combine(lanes[lane], lanes[lane + half]);
        }
      }
      total = F::combine(total, lanes[0]);
    }
  });
  return total;
}

// totals[0..width) for `width` <= kReduceColumns neighbouring outputs, over r in [begin, end). The
// running sums live in L1: a store and two loads per register, still faster than memory.
template <class T, class F, bool kProduct>
void reduce_columns(
    const ReduceArgs& args,
    int64_t x_offset,
    int64_t y_offset,
    int width,
    int64_t begin,
    int64_t end,
    double* totals) {
  using A = Accumulator<T>;
  using V = Vec<A>;
  constexpr int kLanes = V::kLanes;
  const Operands<T, F, kProduct> in{
      static_cast<const T*>(args.x) + x_offset,
      static_cast<const T*>(args.y) + (kProduct ? y_offset : 0),
      args.kept.inner_stride[0],
      args.kept.inner_stride[1]};
  const int64_t x_next = args.reduced.inner_stride[0];
  const int64_t y_next = args.reduced.inner_stride[1];
  alignas(64) A sums[kReduceColumns];
  const V empty = V::broadcast(A(F::kEmpty));
  int pending = 0;
  auto clear = [&] {
    for (int c = 0; c < width; c += kLanes) store(sums + c, empty);
    pending = 0;
  };
  auto flush = [&] {
    for (int c = 0; c < width; ++c) totals[c] = F::combine(totals[c], double(sums[c]));
    clear();
  };
  for (int c = 0; c < width; ++c) totals[c] = F::kEmpty;
  clear();
  for_each_reduced(args.reduced, begin, end, [&](int64_t xo, int64_t yo, int64_t count) {
    for (int64_t r = 0; r < count; ++r, xo += x_next, yo += y_next) {
      for (int c = 0; c < width; c += kLanes) {
        const int lanes = width - c < kLanes ? width - c : kLanes;
        const V value = in.load_at(xo + c * in.x_step, yo + c * in.y_step, lanes);
        store(sums + c, F::combine(load(sums + c), value));
      }
      if (++pending == kRun) flush();
    }
  });
  flush();
}

template <class T, class F, bool kProduct>
void reduce_typed(CpuContext& context, const ReduceArgs& args) {
  T* out = static_cast<T*>(args.out);
  const int64_t outputs = args.kept.rows * args.kept.inner;
  const int64_t reductions = args.reduced.rows * args.reduced.inner;
  const int64_t per_row = (args.kept.inner + kReduceColumns - 1) / kReduceColumns;
  auto finish = [&](int64_t output, double total) {
    out[output] = static_cast<T>(static_cast<Accumulator<T>>(args.scale * total));
  };
  const int64_t bundles = (args.blocks + args.bundle - 1) / args.bundle;
  parallel_for(context.threads, bundles * args.segments, [&](int64_t chunk) {
    const int64_t segment = chunk % args.segments;
    const int64_t begin = segment * args.segment;
    const int64_t end = begin + args.segment < reductions ? begin + args.segment : reductions;
    const int64_t first = chunk / args.segments * args.bundle;
    const int64_t last = first + args.bundle < args.blocks ? first + args.bundle : args.blocks;
    for (int64_t block = first; block < last; ++block) {
      const int64_t row = args.columns ? block / per_row : block / args.kept.inner;
      const int64_t at = args.columns ? block % per_row * kReduceColumns : block % args.kept.inner;
      const int64_t left = args.kept.inner - at;
      const int width = !args.columns ? 1 : int(left < kReduceColumns ? left : kReduceColumns);
      const auto offset = args.kept.offsets(row);
      const int64_t x_offset = offset[0] + at * args.kept.inner_stride[0];
      const int64_t y_offset = offset[1] + at * args.kept.inner_stride[1];
      double totals[kReduceColumns];
      if (args.columns) {
        reduce_columns<T, F, kProduct>(args, x_offset, y_offset, width, begin, end, totals);
      } else {
        totals[0] = reduce_row<T, F, kProduct>(args, x_offset, y_offset, begin, end);
      }
      const int64_t output = row * args.kept.inner + at;
      for (int c = 0; c < width; ++c) {
        if (args.segments == 1)
          finish(output + c, totals[c]);
        else
          args.partials[segment * outputs + output + c] = totals[c];
      }
    }
  });
  if (args.segments == 1) return;
  for (int64_t output = 0; output < outputs; ++output) {
    double total = args.partials[output];
    for (int64_t segment = 1; segment < args.segments; ++segment) {
      total = F::combine(total, args.partials[segment * outputs + output]);
    }
    finish(output, total);
  }
}

}  // namespace

void reduce(CpuContext& context, const ReduceArgs& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    if (args.function == ReduceFunction::max) {
      reduce_typed<T, Max, false>(context, args);
    } else if (args.y != nullptr) {
      reduce_typed<T, Sum, true>(context, args);
    } else {
      reduce_typed<T, Sum, false>(context, args);
    }
  });
}

}  // namespace sluice::kernels::SLUICE_ISA

SLUICE_DISPATCH(reduce, ReduceArgs)
