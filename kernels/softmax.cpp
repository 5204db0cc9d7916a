// Wide rows run along the row. Narrow ones (a router's three experts) would be mostly padding, so
// there each lane of a register works on a row of its own. Either way a row's bits do not depend on
// its neighbours.
#include "kernels/softmax.h"

#include "kernels/simd/dispatch.h"
#include "kernels/simd/math.h"
#include "kernels/simd/row_bundles.h"
#include "kernels/simd/rows.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

constexpr int64_t kNarrow = 16;

template <class T>
using Register = Vec<Accumulator<T>>;

// Entries of one row as registers, the ragged end filled.
template <class T>
struct WideRow {
  const T* from;
  int64_t width;

  template <class Body>
  SLUICE_INLINE void each(Accumulator<T> fill, Body body) const {
    for_each_vector<T>(
        width, [&](int64_t i, int count) __attribute__((always_inline)) {
          body(
              i,
              count,
              count == kLanesOf<T> ? load(from + i) : load_partial(from + i, count, fill));
        });
  }
};

// Powers of bf16 rows would be rounded twice if they were kept in the output.
template <class T>
inline constexpr bool kKeepsPowers = !std::is_same_v<T, bfloat16>;

// The largest entry and the sum of e^(x - largest); sum 0 says that all entries are -infinity. The
// powers go to `powers` unless it is null.
template <class T>
struct Normalizer {
  Accumulator<T> largest, sum;

  SLUICE_INLINE explicit Normalizer(const WideRow<T>& row, T* powers = nullptr) {
    constexpr auto kLeast = -Accumulator<T>(__builtin_inff());
    using V = Register<T>;
    V top = V::broadcast(kLeast);
    row.each(
        kLeast, [&](int64_t, int, V x) __attribute__((always_inline)) { top = max(x, top); });
    largest = reduce_max(top);
    // Differences of infinities would be NaN; with 0 every power of an empty row is 0.
    if (largest == kLeast) largest = 0;
    const V shift = V::broadcast(largest);
    V total = V::zero();
    row.each(
        kLeast, [&](int64_t i, int count, V x) __attribute__((always_inline)) {
          const V power = exp(x - shift);
          total += power;
          if (powers != nullptr) store_count(powers + i, power, count);
        });
    sum = reduce_add(total);
  }
};

template <class T>
void log_softmax_row(const Softmax& args, int64_t index) {
  using V = Register<T>;
  const WideRow<T> row{static_cast<const T*>(args.x) + index * args.width, args.width};
  T* out = static_cast<T*>(args.out) + index * args.width;
  const Normalizer<T> n(row);
  const V shift = V::broadcast(n.largest);
  const V log_sum = log(V::broadcast(n.sum));
  row.each(
      0, [&](int64_t i, int count, V x) __attribute__((always_inline)) {
        // (x - largest) first: it is exact for entries near the top, where log_sum is small.
        store_count(out + i, n.sum == 0 ? x : x - shift - log_sum, count);
      });
}

template <class T>
void softmax_row(const Softmax& args, int64_t index) {
  using V = Register<T>;
  const WideRow<T> row{static_cast<const T*>(args.x) + index * args.width, args.width};
  T* out = static_cast<T*>(args.out) + index * args.width;
  const Normalizer<T> n(row, kKeepsPowers<T> ? out : nullptr);
  const V shift = V::broadcast(n.largest);
  const V inverse = V::broadcast(n.sum == 0 ? 0 : 1 / n.sum);
  if constexpr (kKeepsPowers<T>) {
    for_each_vector<T>(
        args.width, [&](int64_t i, int count) __attribute__((always_inline)) {
          store_count(out + i, load_count(out + i, count) * inverse, count);
        });
  } else {
    row.each(
        0, [&](int64_t i, int count, V x) __attribute__((always_inline)) {
          store_count(out + i, exp(x - shift) * inverse, count);
        });
  }
}

template <class T>
void gradient_row(const SoftmaxGradient& args, int64_t index) {
  using V = Register<T>;
  const int64_t offset = index * args.width;
  const WideRow<T> row{static_cast<const T*>(args.x) + offset, args.width};
  const T* grad = static_cast<const T*>(args.grad) + offset;
  T* grad_x = static_cast<T*>(args.grad_x) + offset;
  const Normalizer<T> n(row, kKeepsPowers<T> ? grad_x : nullptr);
  const V shift = V::broadcast(n.largest);
  // body(i, count, power, grad) along the row.
  auto each = [&](auto body) __attribute__((always_inline)) {
    row.each(
        0, [&](int64_t i, int count, V x) __attribute__((always_inline)) {
          const V power = kKeepsPowers<T> ? load_count(grad_x + i, count) : exp(x - shift);
          body(i, count, power, load_count(grad + i, count));
        });
  };
  const auto inverse = n.sum == 0 ? Accumulator<T>(0) : 1 / n.sum;
  V total = V::zero();
  if (args.logarithm) {
    each([&](int64_t, int, V, V g) __attribute__((always_inline)) { total += g; });
    const V factor = V::broadcast(reduce_add(total) * inverse);
    each([&](int64_t i, int count, V power, V g) __attribute__((always_inline)) {
      store_count(grad_x + i, n.sum == 0 ? V::zero() : g - power * factor, count);
    });
  } else {
    each([&](int64_t, int, V power, V g) __attribute__((always_inline)) { total += power * g; });
    const V scale = V::broadcast(inverse);
    const V mean = V::broadcast(reduce_add(total) * inverse);
    each([&](int64_t i, int count, V power, V g) __attribute__((always_inline)) {
      store_count(grad_x + i, power * scale * (g - mean), count);
    });
  }
}

// Column j of `count` rows, one row per lane.
template <class T>
SLUICE_INLINE Register<T> load_rows(const T* from, int64_t width, int count) {
  Register<T> out = Register<T>::zero();
  for (int lane = 0; lane < count; ++lane) out.raw[lane] = Accumulator<T>(from[lane * width]);
  return out;
}

template <class T>
SLUICE_INLINE void store_rows(T* to, int64_t width, Register<T> value, int count) {
  for (int lane = 0; lane < count; ++lane) to[lane * width] = static_cast<T>(value.raw[lane]);
}

// The narrow form of Normalizer: e[j] = e^(x_j - largest) for each of the rows.
template <class T>
struct NarrowRows {
  using V = Register<T>;
  V x[kNarrow], e[kNarrow];
  V largest, sum;

  SLUICE_INLINE NarrowRows(const T* from, int64_t width, int count) {
    constexpr auto kLeast = -Accumulator<T>(__builtin_inff());
    largest = V::broadcast(kLeast);
    for (int64_t j = 0; j < width; ++j) {
      x[j] = load_rows(from + j, width, count);
      largest = max(x[j], largest);
    }
    largest.raw = largest.raw == V::broadcast(kLeast).raw ? V::zero().raw : largest.raw;
    sum = V::zero();
    for (int64_t j = 0; j < width; ++j) {
      e[j] = exp(x[j] - largest);
      sum += e[j];
    }
  }

  // value where the row had something to normalise, else `empty`.
  SLUICE_INLINE V unless_empty(V value, V empty) const {
    return {sum.raw == V::zero().raw ? empty.raw : value.raw};
  }
};

template <class T>
void softmax_rows(const Softmax& args, int64_t first, int count) {
  using V = Register<T>;
  const int64_t offset = first * args.width;
  const NarrowRows<T> rows(static_cast<const T*>(args.x) + offset, args.width, count);
  T* out = static_cast<T*>(args.out) + offset;
  const V log_sum = args.logarithm ? log(rows.sum) : V::zero();
  const V inverse = rows.unless_empty(V::broadcast(1) / rows.sum, V::zero());
  for (int64_t j = 0; j < args.width; ++j) {
    const V y = args.logarithm ? rows.unless_empty(rows.x[j] - rows.largest - log_sum, rows.x[j])
                               : rows.e[j] * inverse;
    store_rows(out + j, args.width, y, count);
  }
}

template <class T>
void gradient_rows(const SoftmaxGradient& args, int64_t first, int count) {
  using V = Register<T>;
  const int64_t offset = first * args.width;
  const NarrowRows<T> rows(static_cast<const T*>(args.x) + offset, args.width, count);
  const T* grad = static_cast<const T*>(args.grad) + offset;
  T* grad_x = static_cast<T*>(args.grad_x) + offset;
  V g[kNarrow];
  V total = V::zero();
  for (int64_t j = 0; j < args.width; ++j) {
    g[j] = load_rows(grad + j, args.width, count);
    total += args.logarithm ? g[j] : rows.e[j] * g[j];
  }
  const V inverse = rows.unless_empty(V::broadcast(1) / rows.sum, V::zero());
  const V mean = total * inverse;
  for (int64_t j = 0; j < args.width; ++j) {
    const V value = args.logarithm ? rows.unless_empty(g[j] - rows.e[j] * mean, V::zero())
                                   : rows.e[j] * inverse * (g[j] - mean);
    store_rows(grad_x + j, args.width, value, count);
  }
}

// Calls wide(row) for each row, or narrow(first_row, count) for groups of rows.
template <class T, class Wide, class Narrow>
SLUICE_INLINE void for_rows(
    CpuContext& context, int64_t rows, int64_t width, Wide wide, Narrow narrow) {
  // An exponential costs as much as four or so plain elements.
  for_each_row_bundle(context.threads, rows, 4 * width, [&](int64_t first, int64_t last) {
    if (width > kNarrow) {
      for (int64_t row = first; row < last; ++row) wide(row);
    } else {
      for (int64_t row = first; row < last; row += kLanesOf<T>) {
        narrow(row, last - row < kLanesOf<T> ? int(last - row) : kLanesOf<T>);
      }
    }
  });
}

}  // namespace

void softmax(CpuContext& context, const Softmax& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    for_rows<T>(
        context,
        args.rows,
        args.width,
        [&](int64_t row) {
          if (args.logarithm)
            log_softmax_row<T>(args, row);
          else
            softmax_row<T>(args, row);
        },
        [&](int64_t first, int count) { softmax_rows<T>(args, first, count); });
  });
}

void softmax_gradient(CpuContext& context, const SoftmaxGradient& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    for_rows<T>(
        context,
        args.rows,
        args.width,
        [&](int64_t row) { gradient_row<T>(args, row); },
        [&](int64_t first, int count) { gradient_rows<T>(args, first, count); });
  });
}

}  // namespace sluice::kernels::SLUICE_ISA

SLUICE_DISPATCH(softmax, Softmax)
SLUICE_DISPATCH(softmax_gradient, SoftmaxGradient)
