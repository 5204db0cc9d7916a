// Applies a function of vector registers along the runs of a strided loop.
//
// Every element goes through the same vector code: tails are padded, strided runs are gathered into
// a small buffer first. So the result of an element depends neither on its position nor on the
// layout of the tensors, and each function is compiled once per dtype.
#pragma once

#include "engine/strided.h"
#include "kernels/simd/simd.h"

namespace sluice::kernels::SLUICE_ISA {

/// Elements staged at a time from a strided run; a multiple of every register's lanes.
inline constexpr int kStage = 256;

/// to[i] = from[i * step] for i < count, and zeros up to `padded`.
template <class T>
__attribute__((noinline)) void gather_run(
    T* to, const T* from, int64_t step, int64_t count, int64_t padded) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i * step];
  for (int64_t i = count; i < padded; ++i) to[i] = T(0.0f);
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
  bool dense = loop.inner_stride[0] == 1;
  for (int n = 0; n < N; ++n) {
    const int64_t step = loop.inner_stride[size_t(n) + 1];  // negative in a reversed view
    dense = dense && (step == 0 || step == 1);
  }
  for_each_run(threads, loop, [&](const auto& offset, int64_t count) {
    alignas(64) T gathered[N][kStage];
    alignas(64) T results[kStage];
    int64_t advance[N];  // 0 for a repeated value, of which one register is kept
    for (int n = 0; n < N; ++n) {
      advance[n] = loop.inner_stride[size_t(n) + 1] != 0;
      if (advance[n] != 0) continue;
      for (int i = 0; i < kLanes; ++i) gathered[n][i] = in[n][offset[size_t(n) + 1]];
    }
    for (int64_t begin = 0, size = 0; begin < count; begin += size) {
      const int64_t left = count - begin;
      const bool staged = !dense || left < kLanes;
      size = !staged ? left - left % kLanes : left < kStage ? left : kStage;
      const T* source[N];
      for (int n = 0; n < N; ++n) {
        const int64_t step = loop.inner_stride[size_t(n) + 1];
        source[n] = in[n] + offset[size_t(n) + 1] + begin * step;
        if (step != 0 && !staged) continue;
        const int64_t padded = (size + kLanes - 1) / kLanes * kLanes;
        if (step != 0) gather_run(gathered[n], source[n], step, size, padded);
        source[n] = gathered[n];
      }
      T* to = out + offset[0] + begin * loop.inner_stride[0];
      T* target = staged ? results : to;
      for (int64_t i = 0; i < size; i += kLanes) {
        V result;
        if constexpr (N == 1) {
          result = f(load(source[0] + i * advance[0]));
        } else {
          result = f(load(source[0] + i * advance[0]), load(source[1] + i * advance[1]));
        }
        store(target + i, result);
      }
      if (staged) scatter_run(to, loop.inner_stride[0], results, size);
    }
  });
}

}  // namespace sluice::kernels::SLUICE_ISA
