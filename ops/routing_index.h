// From routing decisions to lists of tokens per expert.
#pragma once

#include "engine/tensor.h"
#include "kernels/routing_index.h"
#include "ops/attention_options.h"

namespace sluice::ops {

/// B * T * K decisions grouped by expert. K is the number of experts per token, 1 unless the ids
/// have a third axis.
struct RoutingIndex {
  int experts = 0;
  int64_t batch = 0, tokens = 0, choices = 1;
  int tile = 64;  ///< most slots per entry of `tiles`

  Tensor ids;        ///< (B, T, K) i32: expert of each decision, -1 for none
  Tensor positions;  ///< (B*T*K) i32: token of each slot, rising in each (expert, batch); -1 after
  Tensor offsets;    ///< (E*B + 1) i32: slots of (e, b) are [offsets[e*B+b], offsets[e*B+b+1])
  Tensor counts;     ///< (E) i32: slots of each expert
  Tensor slots;      ///< (B, T, K) i32: the slot of each decision, -1 if dropped
  Tensor tiles;      ///< (M, 4) i32: expert, batch, first slot, number of slots; -1, 0, 0, 0 after
  Tensor tile_offsets;  ///< (E + 1) i32: tiles of expert e are [tile_offsets[e], tile_offsets[e+1])

  /// Number of slots of one expert. Reads the count from the device.
  int64_t rows(int expert) const;
  /// The tokens of one expert as attention takes them: views of positions and offsets. K == 1.
  QueryList queries(int expert) const;
  /// What kernels take.
  kernels::RoutingView view() const;
};

struct RoutingIndexOptions {
  int tile = 64;
};

/// Groups tokens by the expert they were routed to, keeping token order (a stable counting sort).
///
///   slots of expert e = the (b, t, k) with ids[b,t,k] = e, in lexicographic order
///
/// An id of -1 drops the decision: it has no slot. The number M of `tiles` bounds those of any ids
/// (B*T*K / tile + E*B, at most B*T*K), so a launch over all of them needs no count on the host.
///
/// Shapes  ids: (B, T) or (B, T, K), B*T*K < 2^31, K <= 512; experts in 1..512
/// DTypes  ids i32; results i32
/// Grads   none
/// Cost    two passes over ids; E counters per 4096 ids, in parallel over those
/// Throws  ArgumentError (undefined, an id outside [-1, experts), experts, tile < 1), DTypeError,
///         ShapeError
RoutingIndex routing_index(const Tensor& ids, int experts, const RoutingIndexOptions& options = {});

}  // namespace sluice::ops
