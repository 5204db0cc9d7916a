#include "kernels/attention_partition.h"

namespace sluice::kernels {
namespace {

constexpr size_t kAlignment = 64;
// Concurrent sets cost memory; above this the pairs alone must keep the threads busy.
constexpr size_t kMostConcurrentBytes = size_t{256} << 20;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

size_t sum_size(DType dtype) { return dtype == DType::f64 ? 8 : 4; }

}  // namespace

void count_tiles(const AttentionProblem& problem, int64_t* tile_begin) {
  tile_begin[0] = 0;
  for (int64_t s = 0; s < problem.sequence_count; ++s) {
    tile_begin[s + 1] = tile_begin[s] + tiles_of(problem.query_count(s));
  }
}

QueryTileWork forward_work(
    const AttentionProblem& problem, const int64_t* tile_begin, int64_t chunk) {
  // The last sequence whose tiles start at or before the chunk.
  int64_t sequence = 0;
  int64_t beyond = problem.sequence_count;
  while (beyond - sequence > 1) {
    const int64_t middle = sequence + (beyond - sequence) / 2;
    (tile_begin[middle] * problem.heads <= chunk ? sequence : beyond) = middle;
  }
  const int64_t tiles = tile_begin[sequence + 1] - tile_begin[sequence];
  const int64_t local = chunk - tile_begin[sequence] * problem.heads;
  const int64_t tile = tiles - 1 - local % tiles;
  const int64_t first = tile * kQueryTile;
  const int64_t left = problem.query_count(sequence) - first;
  return {
      sequence,
      static_cast<int>(local / tiles),
      first,
      static_cast<int>(left < kQueryTile ? left : kQueryTile)};
}

ForwardScratch forward_scratch(const AttentionProblem& problem, int threads) {
  const auto width = static_cast<size_t>(padded_width(problem.head_size));
  ForwardScratch scratch;
  scratch.thread_offset =
      aligned(static_cast<size_t>(problem.sequence_count + 1) * sizeof(int64_t));
  // Queries in lanes, keys, values, output tile, and scores.
  const size_t entries = 4 * kQueryTile * width + kKeyBlock * kQueryTile;
  scratch.thread_bytes = aligned(entries * sum_size(problem.dtype));
  scratch.bytes = scratch.thread_offset + scratch.thread_bytes * static_cast<size_t>(threads);
  return scratch;
}

BackwardScratch backward_scratch(const AttentionProblem& problem, int threads) {
  const auto width = static_cast<size_t>(padded_width(problem.head_size));
  const size_t size = sum_size(problem.dtype);
  const int group = problem.heads / problem.kv_heads;
  BackwardScratch scratch;
  for (int64_t s = 0; s < problem.sequence_count; ++s) {
    const int sets = backward_sets(tiles_of(problem.query_count(s)) * group);
    if (sets > scratch.sets) scratch.sets = sets;
    const int64_t keys = problem.sequences[s].keys;
    if (keys > scratch.sum_rows) scratch.sum_rows = keys;
  }
  scratch.sum_rows = (scratch.sum_rows + kKeyGroup - 1) / kKeyGroup * kKeyGroup;
  scratch.sums_bytes = aligned(2 * static_cast<size_t>(scratch.sum_rows) * width * size);
  const int64_t pairs = problem.sequence_count * problem.kv_heads;
  const size_t all_sets = static_cast<size_t>(pairs) * static_cast<size_t>(scratch.sets);
  scratch.concurrent = threads > 1 && scratch.sets > 1 && pairs < 2 * int64_t{threads} &&
                       all_sets * scratch.sums_bytes <= kMostConcurrentBytes;
  if (scratch.concurrent) {
    scratch.sums_offset = aligned(all_sets * sizeof(KeySpan));
    scratch.thread_offset = scratch.sums_offset + all_sets * scratch.sums_bytes;
  } else {
    scratch.thread_sums = scratch.sets > 1 ? 2 : 1;
  }
  // Queries and output gradients in lanes and in rows, keys, values, gradient of queries; weights
  // and score gradients.
  const size_t entries = 7 * kQueryTile * width + 2 * kKeyBlock * kQueryTile;
  scratch.thread_bytes = scratch.thread_sums * scratch.sums_bytes + aligned(entries * size);
  scratch.bytes = scratch.thread_offset + scratch.thread_bytes * static_cast<size_t>(threads);
  return scratch;
}

size_t attention_forward_scratch_bytes(const AttentionProblem& problem, int threads) {
  return forward_scratch(problem, threads).bytes;
}

size_t attention_backward_scratch_bytes(const AttentionProblem& problem, int threads) {
  return backward_scratch(problem, threads).bytes;
}

}  // namespace sluice::kernels
