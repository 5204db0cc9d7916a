#include "ops/routing_index.h"

#include "engine/context.h"
#include "ops/check.h"

namespace sluice::ops {

int64_t RoutingIndex::rows(int expert) const { return counts.data<int32_t>()[expert]; }

QueryList RoutingIndex::queries(int expert) const {
  return {positions, offsets.alias({batch + 1}, {1}, offsets.offset() + expert * batch)};
}

kernels::RoutingView RoutingIndex::view() const {
  return {
      .ids = ids.data<int32_t>(),
      .slots = slots.data<int32_t>(),
      .offsets = offsets.data<int32_t>(),
      .experts = experts,
      .batch = batch,
      .tokens = tokens,
      .choices = choices};
}

RoutingIndex routing_index(const Tensor& ids, int experts, const RoutingIndexOptions& options) {
  check_dtype(ids, DType::i32, "routing_index", "ids");
  SLUICE_CHECK(
      ids.rank() == 2 || ids.rank() == 3,
      ShapeError,
      "routing_index: ids must have shape (B, T) or (B, T, K), got {}",
      to_string(ids.shape()));
  SLUICE_CHECK(
      ids.numel() < (int64_t{1} << 31),
      ShapeError,
      "routing_index: ids must have fewer than 2^31 entries, got {}",
      to_string(ids.shape()));
  SLUICE_CHECK(
      ids.rank() == 2 || ids.size(2) <= 512,
      ShapeError,
      "routing_index: ids must have at most 512 choices per token, got {}",
      to_string(ids.shape()));
  SLUICE_CHECK(
      experts >= 1 && experts <= 512,
      ArgumentError,
      "routing_index: experts must be in 1..512, got {}",
      experts);
  SLUICE_CHECK(
      options.tile >= 1, ArgumentError, "routing_index: tile must be >= 1, got {}", options.tile);

  RoutingIndex index;
  index.experts = experts;
  index.batch = ids.size(0);
  index.tokens = ids.size(1);
  index.choices = ids.rank() == 3 ? ids.size(2) : 1;
  index.tile = options.tile;
  const Shape shape{index.batch, index.tokens, index.choices};
  // A copy: slots and ids must stay consistent whatever happens to the caller's tensor.
  index.ids = clone(ids).alias(shape, contiguous_strides(shape), 0);
  const int64_t groups = experts * index.batch;
  const int64_t max_tiles = kernels::routing_tile_bound(ids.numel(), groups, options.tile);
  const TensorOptions i32{DType::i32, ids.device()};
  index.positions = empty({ids.numel()}, i32);
  index.offsets = empty({groups + 1}, i32);
  index.counts = empty({experts}, i32);
  index.slots = empty(shape, i32);
  index.tiles = empty({max_tiles, 4}, i32);
  index.tile_offsets = empty({experts + 1}, i32);

  const Tensor first_invalid = empty({1}, {DType::i64, ids.device()});
  kernels::BuildRoutingIndex args{
      .ids = index.ids.data<int32_t>(),
      .experts = experts,
      .batch = index.batch,
      .tokens = index.tokens,
      .choices = index.choices,
      .tile = options.tile,
      .max_tiles = max_tiles,
      .positions = index.positions.data<int32_t>(),
      .slots = index.slots.data<int32_t>(),
      .offsets = index.offsets.data<int32_t>(),
      .counts = index.counts.data<int32_t>(),
      .tiles = index.tiles.data<int32_t>(),
      .tile_offsets = index.tile_offsets.data<int32_t>(),
      .first_invalid = first_invalid.data<int64_t>(),
      .scratch = nullptr};
  const auto scratch_bytes = int64_t(kernels::routing_index_scratch_bytes(args));
  const Tensor scratch = empty({scratch_bytes / int64_t(sizeof(int32_t))}, i32);
  args.scratch = scratch.data<int32_t>();
  SLUICE_LAUNCH(ids.device(), "routing_index", kernels::routing_index, args);
  const int64_t invalid = first_invalid.item<int64_t>();
  SLUICE_CHECK(
      invalid < 0,
      ArgumentError,
      "routing_index: ids must be in [-1, {}), got {} at entry {}",
      experts,
      index.ids.data<int32_t>()[invalid],
      invalid);
  return index;
}

}  // namespace sluice::ops
