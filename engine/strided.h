// Walking several strided tensors of one shape in step: axes that can be merged are merged, the
// rest is cut into rows that a caller handles with a plain inner loop.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "engine/shape.h"
#include "engine/threads.h"

namespace sluice {

/// The common iteration space of N operands: outer axes and one inner axis.
template <int N>
struct StridedLoop {
  int outer_rank = 0;
  std::array<int64_t, kMaxRank> outer{};  // extents, outermost first
  std::array<std::array<int64_t, kMaxRank>, N> outer_stride{};
  int64_t rows = 1;   // product of outer extents
  int64_t inner = 1;  // extent of the inner axis
  std::array<int64_t, N> inner_stride{};

  StridedLoop(const Shape& shape, const std::array<Strides, N>& strides) {
    std::array<int64_t, kMaxRank> extent{};
    std::array<std::array<int64_t, kMaxRank>, N> stride{};
    int rank = 0;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (shape[axis] == 1) continue;
      bool mergeable = rank > 0;
      for (int n = 0; n < N && mergeable; ++n) {
        mergeable = stride[n][rank - 1] == strides[n][axis] * shape[axis];
      }
      if (mergeable) {
        extent[rank - 1] *= shape[axis];
        for (int n = 0; n < N; ++n) stride[n][rank - 1] = strides[n][axis];
      } else {
        extent[rank] = shape[axis];
        for (int n = 0; n < N; ++n) stride[n][rank] = strides[n][axis];
        ++rank;
      }
    }
    if (shape.numel() == 0) {
      rows = 0;
      return;
    }
    if (rank > 0) {
      inner = extent[rank - 1];
      for (int n = 0; n < N; ++n) inner_stride[n] = stride[n][rank - 1];
      outer_rank = rank - 1;
    }
    for (int axis = 0; axis < outer_rank; ++axis) {
      outer[axis] = extent[axis];
      rows *= extent[axis];
      for (int n = 0; n < N; ++n) outer_stride[n][axis] = stride[n][axis];
    }
  }

  /// Where a walk over rows stands: the index along each outer axis and the element offset of each
  /// operand.
  struct Cursor {
    std::array<int64_t, kMaxRank> index;
    std::array<int64_t, N> offset;
  };

  // These functions are inlined for certain: an out-of-line copy from a file compiled for a newer
  // CPU could be the one that the linker keeps for everybody.

  /// The start of `row`.
  [[gnu::always_inline]] Cursor at(int64_t row) const {
    Cursor cursor{};
    for (int axis = outer_rank - 1; axis >= 0; --axis) {
      cursor.index[axis] = row % outer[axis];
      row /= outer[axis];
      for (int n = 0; n < N; ++n) cursor.offset[n] += cursor.index[axis] * outer_stride[n][axis];
    }
    return cursor;
  }

  /// Element offset of each operand at the start of `row`.
  [[gnu::always_inline]] std::array<int64_t, N> offsets(int64_t row) const {
    return at(row).offset;
  }

  /// Moves to the next row, without the divisions that cost more than copying a short row.
  [[gnu::always_inline]] void advance(Cursor& cursor) const {
    for (int axis = outer_rank - 1; axis >= 0; --axis) {
      for (int n = 0; n < N; ++n) cursor.offset[n] += outer_stride[n][axis];
      if (++cursor.index[axis] < outer[axis]) return;
      for (int n = 0; n < N; ++n) cursor.offset[n] -= outer[axis] * outer_stride[n][axis];
      cursor.index[axis] = 0;
    }
  }
};

/// The loop for callers to whom the order of the elements means nothing: where the last axis is too
/// short to be worth an inner loop, as in (100000, 3) + (3), the longest one takes its place.
template <int N>
StridedLoop<N> unordered_loop(const Shape& shape, const std::array<Strides, N>& strides) {
  constexpr int64_t kShort = 16;
  StridedLoop<N> loop(shape, strides);
  int longest = -1;
  for (int axis = 0; axis < loop.outer_rank; ++axis) {
    if (longest < 0 || loop.outer[axis] > loop.outer[longest]) longest = axis;
  }
  if (longest < 0 || loop.inner >= kShort || loop.outer[longest] <= loop.inner) return loop;
  loop.rows = loop.rows / loop.outer[longest] * loop.inner;
  std::swap(loop.inner, loop.outer[longest]);
  for (int n = 0; n < N; ++n) std::swap(loop.inner_stride[n], loop.outer_stride[n][longest]);
  return loop;
}

/// Below this many elements a parallel region costs more than it saves.
inline constexpr int64_t kParallelElements = 32768;

/// Calls body(offsets, count) for runs along the inner axis that cover the whole space; `offsets`
/// are element offsets per operand, steps are loop.inner_stride. Work is cut into chunks of a fixed
/// size, so the calls are the same for any thread count.
template <int N, class Body>
void for_each_run(ThreadPool& pool, const StridedLoop<N>& loop, Body&& body) {
  if (loop.rows == 0) return;
  // Long rows are cut, short rows are bundled: about kParallelElements per chunk either way.
  const int64_t pieces = (loop.inner + kParallelElements - 1) / kParallelElements;
  const int64_t bundle = pieces > 1 ? 1 : (kParallelElements + loop.inner - 1) / loop.inner;
  const int64_t chunks = pieces > 1 ? loop.rows * pieces : (loop.rows + bundle - 1) / bundle;
  parallel_for(pool, chunks, [&](int64_t chunk) {
    if (pieces > 1) {
      const int64_t begin = chunk % pieces * kParallelElements;
      const int64_t count = std::min(kParallelElements, loop.inner - begin);
      std::array<int64_t, N> offset = loop.offsets(chunk / pieces);
      for (int n = 0; n < N; ++n) offset[n] += begin * loop.inner_stride[n];
      body(offset, count);
      return;
    }
    const int64_t last = std::min(loop.rows, (chunk + 1) * bundle);
    auto cursor = loop.at(chunk * bundle);
    for (int64_t row = chunk * bundle; row < last; ++row, loop.advance(cursor)) {
      body(cursor.offset, loop.inner);
    }
  });
}

}  // namespace sluice
