// See the header for the scheme. Scratch is one row of `experts` counters per piece, and one cell
// per piece for an invalid entry.
#include "kernels/routing_index.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kPiece = 4096;  // entries; below this a second thread does not pay

// Batch items cut in pieces of kPiece entries; several short pieces make up a chunk of work.
struct Pieces {
  int64_t per_item, count, per_chunk, chunks;

  explicit Pieces(const BuildRoutingIndex& args) {
    const int64_t entries = args.tokens * args.choices;
    per_item = (entries + kPiece - 1) / kPiece;
    count = args.batch * per_item;
    per_chunk = entries > 0 && entries < kPiece ? kPiece / entries : 1;
    chunks = (count + per_chunk - 1) / per_chunk;
  }
};

// Calls body(piece, first entry, end entry) for all pieces, in parallel.
template <class Body>
void for_each_piece(CpuContext& context, const BuildRoutingIndex& args, Body&& body) {
  const Pieces pieces(args);
  const int64_t entries = args.tokens * args.choices;
  parallel_for(context.threads, pieces.chunks, [&](int64_t chunk) {
    const int64_t end = (chunk + 1) * pieces.per_chunk;
    for (int64_t p = chunk * pieces.per_chunk; p < end && p < pieces.count; ++p) {
      const int64_t item = p / pieces.per_item * entries;
      const int64_t begin = p % pieces.per_item * kPiece;
      body(p, item + begin, item + (begin + kPiece < entries ? begin + kPiece : entries));
    }
  });
}

// Turns counters into first slots, and writes what follows from the group sizes alone. The order
// expert, batch, piece is the order of the groups.
void place_groups(const BuildRoutingIndex& args, const Pieces& pieces, int32_t* counters) {
  int32_t slot = 0;
  int32_t tile = 0;
  for (int64_t e = 0; e < args.experts; ++e) {
    const int32_t expert_begin = slot;
    args.tile_offsets[e] = tile;
    for (int64_t b = 0; b < args.batch; ++b) {
      const int32_t group_begin = slot;
      args.offsets[e * args.batch + b] = slot;
      for (int64_t p = b * pieces.per_item; p < (b + 1) * pieces.per_item; ++p) {
        int32_t& counter = counters[p * args.experts + e];
        const int32_t count = counter;
        counter = slot;
        slot += count;
      }
      for (int64_t first = group_begin; first < slot; first += args.tile, ++tile) {
        int32_t* out = args.tiles + int64_t{tile} * 4;
        out[0] = static_cast<int32_t>(e);
        out[1] = static_cast<int32_t>(b);
        out[2] = static_cast<int32_t>(first);
        out[3] = static_cast<int32_t>(slot - first < args.tile ? slot - first : args.tile);
      }
    }
    args.counts[e] = slot - expert_begin;
  }
  args.offsets[args.experts * args.batch] = slot;
  args.tile_offsets[args.experts] = tile;
  for (int64_t t = tile; t < args.max_tiles; ++t) {
    int32_t* out = args.tiles + t * 4;
    out[0] = -1;
    out[1] = out[2] = out[3] = 0;
  }
  const int64_t entries = args.batch * args.tokens * args.choices;
  for (int64_t s = slot; s < entries; ++s) args.positions[s] = -1;
}

}  // namespace

size_t routing_index_scratch_bytes(const BuildRoutingIndex& args) {
  return static_cast<size_t>(Pieces(args).count * (args.experts + 1)) * sizeof(int32_t);
}

void routing_index(CpuContext& context, const BuildRoutingIndex& args) {
  const Pieces pieces(args);
  int32_t* counters = args.scratch;                           // (pieces, experts)
  int32_t* invalid = counters + pieces.count * args.experts;  // (pieces)
  for_each_piece(context, args, [&](int64_t piece, int64_t begin, int64_t end) {
    int32_t* count = counters + piece * args.experts;
    for (int e = 0; e < args.experts; ++e) count[e] = 0;
    invalid[piece] = -1;
    for (int64_t i = begin; i < end; ++i) {
      const int32_t id = args.ids[i];
      if (id >= 0 && id < args.experts)
        ++count[id];
      else if (id != -1 && invalid[piece] < 0)
        invalid[piece] = static_cast<int32_t>(i);
    }
  });
  *args.first_invalid = -1;
  for (int64_t p = 0; p < pieces.count && *args.first_invalid < 0; ++p) {
    *args.first_invalid = invalid[p];
  }
  place_groups(args, pieces, counters);
  for_each_piece(context, args, [&](int64_t piece, int64_t begin, int64_t end) {
    int32_t* next = counters + piece * args.experts;
    const int64_t item = begin - begin % (args.tokens * args.choices);
    for (int64_t i = begin; i < end; ++i) {
      const int32_t id = args.ids[i];
      const bool routed = id >= 0 && id < args.experts;
      args.slots[i] = routed ? next[id]++ : -1;
      if (routed) args.positions[args.slots[i]] = static_cast<int32_t>((i - item) / args.choices);
    }
  });
}

}  // namespace sluice::kernels
