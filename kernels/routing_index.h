// Counting sort of routing decisions: which tokens go to which expert, in token order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/context.h"
#include "kernels/simd/simd.h"

namespace sluice::kernels {

/// Where each of the B * T * choices decisions ("entries", token by token) went. Groups are
/// (expert, batch), expert outermost; a group holds its entries in token order.
struct RoutingView {
  const int32_t* ids;      // (batch, tokens, choices): the expert, or -1
  const int32_t* slots;    // (batch, tokens, choices): place in the grouped order, -1 if dropped
  const int32_t* offsets;  // (experts * batch + 1): group (e, b) has slots from [e * batch + b]
  int experts;
  int64_t batch, tokens, choices;

  /// First slot of an expert: a row of its compact (N_e, C) matrix is slot - first(e).
  SLUICE_INLINE int64_t first(int64_t expert) const { return offsets[expert * batch]; }
};

/// A stable counting sort. Entries are cut in pieces of one batch item each; pieces are counted in
/// parallel, the counts turned into first slots in order, and the entries written in parallel. An
/// id outside [-1, experts) counts as -1 here and is reported in `first_invalid`.
struct BuildRoutingIndex {
  const int32_t* ids;  // (batch, tokens, choices)
  int experts;
  int64_t batch, tokens, choices;
  int tile;            // most slots per tile
  int64_t max_tiles;   // routing_tile_bound
  int32_t* positions;  // (batch * tokens * choices) token of each slot; -1 past the last
  int32_t* slots;      // (batch, tokens, choices)
  int32_t* offsets;    // (experts * batch + 1)
  int32_t* counts;     // (experts)
  int32_t* tiles;  // (max_tiles, 4) expert, batch, first slot, slots; (-1, 0, 0, 0) past the last
  int32_t* tile_offsets;   // (experts + 1) an expert's tiles
  int64_t* first_invalid;  // (1) lowest entry with an id out of range, -1 when there is none
  int32_t* scratch;        // routing_index_scratch_bytes
};
void routing_index(CpuContext& context, const BuildRoutingIndex& args);
size_t routing_index_scratch_bytes(const BuildRoutingIndex& args);

/// Tiles that suffice for any ids: every group may end in one that is not full.
constexpr int64_t routing_tile_bound(int64_t entries, int64_t groups, int64_t tile) {
  const int64_t bound = entries / tile + groups;
  return bound < entries ? bound : entries;
}

}  // namespace sluice::kernels
