// Applies a function of vector registers along the runs of a strided loop.
//
// Every element goes through the same vector code: tails are padded, strided runs are gathered into
// a small buffer first. So the result of an element depends neither on its position nor on the
// layout of the tensors, and each function is compiled once per dtype.
#pragma once

#include "engine/strided.h"
#include "kernels/simd/simd.h"

namespace sluice::kernels::SLUICE_ISA {

/// Elements gathered at a time from a strided run.
inline constexpr int kStage = 256;

template <class T>
__attribute__((noinline)) void gather_run(T* to, const T* from, int64_t step, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i * step];
}

template <class T>
__attribute__((noinline)) void scatter_run(T* to, int64_t step, const T* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i * step] = from[i];
}

/// out[i] = f(in_0[i], .., in_{N-1}[i]) over the loop, whose operand 0 is `out`. `f` maps registers
/// of the accumulator type. `out` may be one of the inputs with the same strides.
template <class T, int N, class F>
void map(
    ThreadPool& threads, T* out, const T* const (&in)[N], const StridedLoop<N + 1>& loop, F f) {
  using V = Vec<Accumulator<T>>;
  constexpr int kLanes = V::kLanes;
  for_each_run(threads, loop, [&](const auto& offset, int64_t count) {
    alignas(64) T gathered[N][kStage];
    alignas(64) T results[kStage];
    const T* from[N];
    int64_t advance[N];  // 0 for a repeated value, of which one register is kept
    bool direct = loop.inner_stride[0] == 1;
    for (int n = 0; n < N; ++n) {
      const int64_t step = loop.inner_stride[size_t(n) + 1];
      from[n] = in[n] + offset[size_t(n) + 1];
      advance[n] = step != 0;
      if (step == 0) {
        for (int i = 0; i < kLanes; ++i) gathered[n][i] = *from[n];
        from[n] = gathered[n];
      } else if (step != 1) {
        direct = false;
      }
    }
    T* to = out + offset[0];
    const int64_t block = direct ? count : kStage;
    for (int64_t begin = 0; begin < count; begin += block) {
      const int64_t size = count - begin < block ? count - begin : block;
      const T* source[N];
      for (int n = 0; n < N; ++n) {
        const int64_t step = loop.inner_stride[size_t(n) + 1];
        source[n] = from[n] + begin * step;
        if (step == 0 || step == 1) continue;
        gather_run(gathered[n], source[n], step, size);
        source[n] = gathered[n];
      }
      const bool dense = loop.inner_stride[0] == 1;
      T* target = dense ? to + begin : results;
      for (int64_t i = 0; i < size; i += kLanes) {
        const int64_t left = size - i;
        V value[N];
        for (int n = 0; n < N; ++n) {
          const T* p = source[n] + i * advance[n];
          value[n] = left >= kLanes || advance[n] == 0 ? load(p) : load_partial(p, int(left));
        }
        V result;
        if constexpr (N == 1)
          result = f(value[0]);
        else
          result = f(value[0], value[1]);
        if (left >= kLanes)
          store(target + i, result);
        else
          store_partial(target + i, result, int(left));
      }
      if (!dense)
        scatter_run(to + begin * loop.inner_stride[0], loop.inner_stride[0], results, size);
    }
  });
}

}  // namespace sluice::kernels::SLUICE_ISA
