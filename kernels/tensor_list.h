// Lists of tensors walked in one parallel region: each is cut into chunks of a fixed size, and the
// chunks of all are numbered through.
#pragma once

#include <cstdint>

#include "kernels/simd/simd.h"

namespace sluice::kernels {

/// Elements per chunk, whatever the thread count.
inline constexpr int64_t kListChunk = 16384;

SLUICE_INLINE constexpr int64_t list_chunks(int64_t count) {
  return (count + kListChunk - 1) / kListChunk;
}

/// Calls body(item, begin, end) with the item of `list` that owns `chunk` and its range of
/// elements. Items are ordered by first_chunk and have a count.
template <class Item, class Body>
SLUICE_INLINE void with_list_chunk(const Item* list, int64_t size, int64_t chunk, Body&& body) {
  int64_t low = 0;
  int64_t high = size;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (list[middle].first_chunk <= chunk)
      low = middle;
    else
      high = middle;
  }
  const int64_t begin = (chunk - list[low].first_chunk) * kListChunk;
  const int64_t end = begin + kListChunk;
  body(list[low], begin, end < list[low].count ? end : list[low].count);
}

}  // namespace sluice::kernels
