// Tokens in chunks; every row that a token touches belongs to it alone, so nothing is shared.
#include "kernels/scatter_rows.h"

#include "kernels/simd/dispatch.h"
#include "kernels/simd/simd.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

constexpr int64_t kChunkElements = int64_t{1} << 15;
constexpr int kMaxChoices = 512;

// Row of a decision in the compact matrix of its expert, or -1.
SLUICE_INLINE int64_t compact_row(const RoutingView& index, int64_t entry) {
  return index.slots[entry] < 0 ? -1 : index.slots[entry] - index.first(index.ids[entry]);
}

// Calls body(token) for all B * T tokens.
template <class Body>
SLUICE_INLINE void for_each_token(
    CpuContext& context, const RoutingView& index, int64_t width, const Body& body) {
  const int64_t total = index.batch * index.tokens;
  const int64_t step = kChunkElements / (width * index.choices + 16) + 1;
  parallel_for(context.threads, (total + step - 1) / step, [&](int64_t chunk) {
    const int64_t end = (chunk + 1) * step < total ? (chunk + 1) * step : total;
    for (int64_t token = chunk * step; token < end; ++token) body(token);
  });
}

template <class T>
SLUICE_INLINE void weighted_sum(
    const T* const* rows, const Accumulator<T>* weights, int count, T* out, int64_t width) {
  using V = Vec<Accumulator<T>>;
  int64_t c = 0;
  for (; c + V::kLanes <= width; c += V::kLanes) {
    V sum = V::zero();
    for (int k = 0; k < count; ++k) sum += V::broadcast(weights[k]) * load(rows[k] + c);
    store(out + c, sum);
  }
  for (; c < width; ++c) {
    Accumulator<T> sum = 0;
    for (int k = 0; k < count; ++k) sum += weights[k] * static_cast<Accumulator<T>>(rows[k][c]);
    out[c] = static_cast<T>(sum);
  }
}

template <class T>
SLUICE_INLINE void scale_row(const T* row, Accumulator<T> weight, T* out, int64_t width) {
  weighted_sum(&row, &weight, 1, out, width);
}

template <class T>
SLUICE_INLINE Accumulator<T> dot(const T* a, const T* b, int64_t width) {
  using V = Vec<Accumulator<T>>;
  V even = V::zero(), odd = V::zero();
  int64_t c = 0;
  for (; c + 2 * V::kLanes <= width; c += 2 * V::kLanes) {
    even += load(a + c) * load(b + c);
    odd += load(a + c + V::kLanes) * load(b + c + V::kLanes);
  }
  Accumulator<T> sum = reduce_add(even + odd);
  for (; c < width; ++c) {
    sum += static_cast<Accumulator<T>>(a[c]) * static_cast<Accumulator<T>>(b[c]);
  }
  return sum;
}

}  // namespace

void scatter_rows(CpuContext& context, const ScatterRows& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    const RoutingView& index = args.index;
    const auto* weights = static_cast<const Accumulator<T>*>(args.weights);
    for_each_token(context, index, args.width, [&](int64_t token) {
      const T* rows[kMaxChoices];
      Accumulator<T> factors[kMaxChoices];
      int count = 0;
      for (int64_t i = token * index.choices; i < (token + 1) * index.choices; ++i) {
        const int64_t row = compact_row(index, i);
        if (row < 0 || args.rows[index.ids[i]] == nullptr) continue;
        rows[count] = static_cast<const T*>(args.rows[index.ids[i]]) + row * args.width;
        factors[count++] = weights != nullptr ? weights[i] : Accumulator<T>(1);
      }
      weighted_sum(
          rows, factors, count, static_cast<T*>(args.out) + token * args.width, args.width);
    });
  });
}

void scatter_rows_backward(CpuContext& context, const ScatterRowsBackward& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    const RoutingView& index = args.index;
    const auto* weights = static_cast<const Accumulator<T>*>(args.weights);
    auto* grad_weights = static_cast<Accumulator<T>*>(args.grad_weights);
    for_each_token(context, index, args.width, [&](int64_t token) {
      const T* grad_out = static_cast<const T*>(args.grad_out) + token * args.width;
      for (int64_t i = token * index.choices; i < (token + 1) * index.choices; ++i) {
        const int64_t row = compact_row(index, i);
        if (row >= 0 && args.grad_rows[index.ids[i]] != nullptr) {
          T* grad_row = static_cast<T*>(args.grad_rows[index.ids[i]]) + row * args.width;
          scale_row(
              grad_out, weights != nullptr ? weights[i] : Accumulator<T>(1), grad_row, args.width);
        }
        if (grad_weights == nullptr) continue;
        const T* rows = row < 0 ? nullptr : static_cast<const T*>(args.rows[index.ids[i]]);
        grad_weights[i] = rows == nullptr ? Accumulator<T>(0)
                                          : dot(grad_out, rows + row * args.width, args.width);
      }
    });
  });
}

}  // namespace sluice::kernels::SLUICE_ISA

SLUICE_DISPATCH(scatter_rows, ScatterRows)
SLUICE_DISPATCH(scatter_rows_backward, ScatterRowsBackward)
