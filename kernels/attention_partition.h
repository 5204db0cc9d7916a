// How softmax attention is cut into chunks of work, and where their scratch lies. Depends on shapes
// and lists only, never on the instruction set; nothing a thread count decides changes a bit.
#pragma once

#include "kernels/attention.h"

namespace sluice::kernels {

inline constexpr int kQueryTile = 64;  ///< queries that share packed keys
inline constexpr int kKeyBlock = 64;   ///< keys packed at once; blocks start at multiples of it
inline constexpr int kKeyGroup = 8;    ///< finest step in keys: edges of windows are cut to it
inline constexpr int kRowGroup = 8;    ///< finest step in queries

/// Head size rounded up to whole vectors of any instruction set.
SLUICE_INLINE int padded_width(int head_size) { return (head_size + 15) / 16 * 16; }

SLUICE_INLINE int64_t tiles_of(int64_t queries) { return (queries + kQueryTile - 1) / kQueryTile; }

/// Queries [first, first + count) to compute, by their number in AttentionProblem::query.
struct QueryTileWork {
  int64_t sequence = 0;
  int head = 0;
  int64_t first = 0;
  int count = 0;
};

/// tile_begin[s] = number of tiles of the sequences before s; (sequences + 1) entries.
void count_tiles(const AttentionProblem& problem, int64_t* tile_begin);

/// The chunk-th tile over all (sequence, head, tile): heads outermost for the sake of the caches,
/// last tile first, since under a causal mask it is the longest.
QueryTileWork forward_work(
    const AttentionProblem& problem, const int64_t* tile_begin, int64_t chunk);

/// Scratch of the forward pass: tile_begin, then one buffer per thread.
struct ForwardScratch {
  size_t thread_offset = 0;  ///< bytes before the first buffer
  size_t thread_bytes = 0;
  size_t bytes = 0;
};
ForwardScratch forward_scratch(const AttentionProblem& problem, int threads);

/// The backward pass sums the gradients of keys over the tiles of one (sequence, key head): all
/// query heads that read it, tile by tile. The tiles are cut into `sets`; each set is summed from
/// zero and the sets are added in order. That order stands whether one thread runs the sets after
/// each other or several threads run them at once.
struct BackwardScratch {
  int sets = 1;             ///< most sets of any pair
  bool concurrent = false;  ///< sets run at once, each with its own sums: for few pairs
  int64_t sum_rows = 0;     ///< keys that sums have room for
  size_t sums_bytes = 0;    ///< of the sums of grad_k, followed by those of grad_v
  size_t sums_offset = 0;   ///< concurrent: (pairs, sets) KeySpans come first, then as many sums
  size_t thread_offset = 0;
  size_t thread_sums = 0;  ///< sums at the start of each thread's buffer
  size_t thread_bytes = 0;
  size_t bytes = 0;
};
BackwardScratch backward_scratch(const AttentionProblem& problem, int threads);

/// Number of sets that `tiles` tiles of one (sequence, key head) are cut into.
SLUICE_INLINE int backward_sets(int64_t tiles) {
  return tiles < 8 ? 1 : tiles >= 64 ? 16 : static_cast<int>(tiles / 4);
}

}  // namespace sluice::kernels
