// Rotation of rows: a thread takes a run of (batch, token) rows with all their heads, so that the
// angles of a token are read once.
#include "kernels/rope.h"

#include "kernels/simd/dispatch.h"
#include "kernels/simd/rows.h"

namespace sluice::kernels::SLUICE_ISA {

inline constexpr int64_t kAnchorStep = 64;

// Which positions occur, and whether anchors pay: they do unless positions are few and far apart.
struct PositionRange {
  int64_t first = 0, last = 0;
  int64_t anchors = 0;  // 0: every angle directly

  explicit SLUICE_INLINE PositionRange(const RopeTable& args) {
    if (args.tokens == 0) return;
    first = position(args, 0);
    last = first;
    for (int64_t t = 1; t < args.tokens; ++t) {
      const int64_t p = position(args, t);
      first = p < first ? p : first;
      last = p > last ? p : last;
    }
    const int64_t needed = (last - first) / kAnchorStep + 1;
    if (needed + kAnchorStep < args.tokens) anchors = needed;
  }

  static SLUICE_INLINE int64_t position(const RopeTable& args, int64_t t) {
    return args.positions != nullptr ? args.positions[t] : args.offset + t;
  }
};

// cos and sin of position * frequency_i for all i, at values[i] and values[half + i].
static inline void angles_at(
    int64_t position, const double* frequencies, int64_t half, double* values) {
  for (int64_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) * frequencies[i];
    values[i] = __builtin_cos(angle);
    values[half + i] = __builtin_sin(angle);
  }
}

void rope_table(CpuContext& context, const RopeTable& args) {
  const int64_t half = args.width / 2;
  const PositionRange range(args);
  // Scratch: frequencies (half), angles of 0..63, angles of the anchors, (2, half) each.
  double* frequencies = args.scratch;
  double* steps = frequencies + half;
  double* anchors = steps + kAnchorStep * 2 * half;
  for (int64_t i = 0; i < half; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(args.width);
    frequencies[i] = __builtin_pow(args.theta, exponent);
  }
  if (range.anchors > 0) {
    parallel_for(context.threads, kAnchorStep + range.anchors, [&](int64_t k) {
      const int64_t anchor = k - kAnchorStep;
      const int64_t position = anchor < 0 ? k : range.first + anchor * kAnchorStep;
      angles_at(position, frequencies, half, steps + k * 2 * half);
    });
  }
  dispatch_floating(args.dtype, [&]<class T>() {
    using A = Accumulator<T>;
    auto* cosines = static_cast<A*>(args.cosines);
    auto* sines = static_cast<A*>(args.sines);
    for_each_row_chunk(
        context.threads, args.tokens, half, [&](int64_t first, int64_t last, int64_t) {
          for (int64_t t = first; t < last; ++t) {
            A* cosine = cosines + t * half;
            A* sine = sines + t * half;
            const int64_t position = PositionRange::position(args, t);
            if (range.anchors == 0) {
              for (int64_t i = 0; i < half; ++i) {
                const double angle = static_cast<double>(position) * frequencies[i];
                cosine[i] = static_cast<A>(__builtin_cos(angle));
                sine[i] = static_cast<A>(__builtin_sin(angle));
              }
              continue;
            }
            const int64_t distance = position - range.first;
            const double* a = anchors + distance / kAnchorStep * 2 * half;
            const double* b = steps + distance % kAnchorStep * 2 * half;
            for (int64_t i = 0; i < half; ++i) {
              cosine[i] = static_cast<A>(a[i] * b[i] - a[half + i] * b[half + i]);
              sine[i] = static_cast<A>(a[half + i] * b[i] + a[i] * b[half + i]);
            }
          }
        });
  });
}

template <class T>
static inline void rotate_row(
    const T* x,
    const Accumulator<T>* cosine,
    const Accumulator<T>* sine,
    bool inverse,
    int64_t half,
    T* out) {
  using V = Vec<Accumulator<T>>;
  const V sign = V::broadcast(inverse ? Accumulator<T>(-1) : Accumulator<T>(1));
  for_each_vector<T>(
      half, [&](int64_t i, int count) __attribute__((always_inline)) {
        const V c = load_count(cosine + i, count);
        const V s = sign * load_count(sine + i, count);
        const V low = load_count(x + i, count);
        const V high = load_count(x + half + i, count);
        store_count(out + i, low * c - high * s, count);
        store_count(out + half + i, high * c + low * s, count);
      });
}

void rope(CpuContext& context, const Rope& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    using A = Accumulator<T>;
    const auto* x = static_cast<const T*>(args.x);
    auto* out = static_cast<T*>(args.out);
    const int64_t half = args.width / 2;
    for_each_row_chunk(
        context.threads,
        args.batch * args.tokens,
        args.heads * args.width,
        [&](int64_t first, int64_t last, int64_t) {
          for (int64_t row = first; row < last; ++row) {
            const int64_t b = row / args.tokens;
            const int64_t t = row % args.tokens;
            const A* cosine = static_cast<const A*>(args.cosines) + t * half;
            const A* sine = static_cast<const A*>(args.sines) + t * half;
            for (int64_t h = 0; h < args.heads; ++h) {
              const RowStrides& from = args.x_strides;
              const RowStrides& to = args.out_strides;
              rotate_row(
                  x + b * from.batch + h * from.head + t * from.token,
                  cosine,
                  sine,
                  args.inverse,
                  half,
                  out + b * to.batch + h * to.head + t * to.token);
            }
          }
        });
  });
}

}  // namespace sluice::kernels::SLUICE_ISA

#if defined(SLUICE_ISA_IS_BASELINE)
namespace sluice::kernels {

size_t rope_table_scratch_bytes(const RopeTable& args) {
  const baseline::PositionRange range(args);
  const int64_t half = args.width / 2;
  return size_t(half + (baseline::kAnchorStep + range.anchors) * 2 * half) * sizeof(double);
}

}  // namespace sluice::kernels
#endif

SLUICE_DISPATCH(rope_table, RopeTable)
SLUICE_DISPATCH(rope, Rope)
