// Which keys a query sees. Every attention kernel asks this one rule, so causality, windows,
// segments, lengths and masked tokens mean the same thing in all of them.
#pragma once

#include <cstdint>

#include "kernels/simd/simd.h"

namespace sluice::kernels {

/// Keys [first, last) of a sequence.
struct KeySpan {
  int64_t first = 0;
  int64_t last = 0;
};

/// The rule of one sequence. Query i stands at position p = i + keys - queries (both ends aligned)
/// and sees
///   causal      j <= p, and j > p - window when there is a window
///   not causal  all keys, or p - window <= j <= p + window
/// cut to the segment that p lies in. A query before the first key (p < 0) sees nothing when causal
/// or when there are segments, else what the rule gives; one whose own token is not kept sees
/// nothing. `keep` does not narrow the span: a kernel skips masked keys inside it.
struct KeyRange {
  int64_t queries = 0;
  int64_t keys = 0;
  bool causal = true;
  int64_t window = 0;                      ///< 0: no window
  const int32_t* segment_begin = nullptr;  ///< (keys) first key of the segment of each key, or null
  const int32_t* segment_end = nullptr;    ///< (keys) one past the last
  const uint8_t* keep = nullptr;           ///< (keys) 0 masks a token, or null

  /// What query i sees; an empty span is {0, 0}.
  SLUICE_INLINE KeySpan operator()(int64_t query) const {
    const int64_t p = query + keys - queries;
    KeySpan span{0, keys};
    if (window > 0) {
      span.first = causal ? p - window + 1 : p - window;
      if (!causal) span.last = p + window + 1;
    }
    if (causal) span.last = p + 1;
    if (p < 0) {
      if (segment_begin != nullptr) return {};
    } else {
      if (keep != nullptr && keep[p] == 0) return {};
      if (segment_begin != nullptr) {
        if (span.first < segment_begin[p]) span.first = segment_begin[p];
        if (span.last > segment_end[p]) span.last = segment_end[p];
      }
    }
    if (span.first < 0) span.first = 0;
    if (span.last > keys) span.last = keys;
    return span.first < span.last ? span : KeySpan{};
  }
};

}  // namespace sluice::kernels
