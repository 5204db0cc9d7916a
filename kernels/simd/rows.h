// Row-wise kernels: a row walked in vectors with its ragged end, rows cut into a number of chunks
// that depends on the shape only, and per-chunk sums (gradients of weights) added up in order.
#pragma once

#include "engine/threads.h"
#include "kernels/simd/simd.h"

namespace sluice::kernels {

/// Most chunks, hence most partial buffers, that rows are cut into.
inline constexpr int64_t kRowChunks = 32;

/// Rows of each chunk but the last: at most kRowChunks chunks, none below about 8192 elements,
/// where a thread's start costs more than its share of the work.
SLUICE_INLINE constexpr int64_t rows_per_chunk(int64_t rows, int64_t width) {
  const int64_t even = (rows + kRowChunks - 1) / kRowChunks;
  const int64_t least = 8192 / (width > 0 ? width : 1) + 1;
  return even > least ? even : least;
}

SLUICE_INLINE constexpr int64_t row_chunks(int64_t rows, int64_t width) {
  const int64_t each = rows_per_chunk(rows, width);
  return (rows + each - 1) / each;
}

namespace SLUICE_ISA {

template <class T>
inline constexpr int kLanesOf = Vec<Accumulator<T>>::kLanes;

/// `count` <= lanes elements; a full vector when it is a constant equal to the lanes.
template <class T>
SLUICE_INLINE Vec<Accumulator<T>> load_count(const T* from, int count) {
  return count == kLanesOf<T> ? load(from) : load_partial(from, count);
}

template <class T>
SLUICE_INLINE void store_count(T* to, Vec<Accumulator<T>> value, int count) {
  if (count == kLanesOf<T>)
    store(to, value);
  else
    store_partial(to, value, count);
}

/// body(first, count) for vectors of T that cover [0, width): count is the constant number of lanes
/// but for a ragged end. Write the body as an always_inline lambda.
template <class T, class Body>
SLUICE_INLINE void for_each_vector(int64_t width, Body&& body) {
  int64_t i = 0;
  for (; i + kLanesOf<T> <= width; i += kLanesOf<T>) body(i, kLanesOf<T>);
  if (i < width) body(i, static_cast<int>(width - i));
}

/// body(first_row, last_row, chunk) over all rows.
template <class Body>
SLUICE_INLINE void for_each_row_chunk(ThreadPool& pool, int64_t rows, int64_t width, Body&& body) {
  const int64_t each = rows_per_chunk(rows, width);
  parallel_for(pool, row_chunks(rows, width), [&](int64_t chunk) {
    const int64_t last = (chunk + 1) * each;
    body(chunk * each, last < rows ? last : rows, chunk);
  });
}

/// out[i] = sum over chunks of partials[chunk][i], in rising order of chunk.
template <class T>
SLUICE_INLINE void sum_partials(
    const Accumulator<T>* partials, int64_t chunks, int64_t width, T* out) {
  for_each_vector<T>(
      width, [&](int64_t i, int count) __attribute__((always_inline)) {
        auto sum = Vec<Accumulator<T>>::zero();
        for (int64_t chunk = 0; chunk < chunks; ++chunk) {
          sum += load_count(partials + chunk * width + i, count);
        }
        store_count(out + i, sum, count);
      });
}

}  // namespace SLUICE_ISA
}  // namespace sluice::kernels
