#include "ops/routing_index.h"

#include <vector>

#include <gtest/gtest.h>

#include "engine/context.h"
#include "engine/errors.h"
#include "tests/support/compare.h"
#include "tests/support/routing.h"

namespace sluice {
namespace {

using ops::routing_index;
using ops::RoutingIndex;
using Ids = std::vector<int32_t>;

Tensor row(const Ids& ids) { return from_values(ids, {1, int64_t(ids.size())}); }

// Everything an index promises, from a plain walk over the ids.
void expect_valid(const RoutingIndex& index, const Tensor& ids, const std::string& what) {
  const Ids flat = ids.to_vector<int32_t>();
  const int64_t entries = index.tokens * index.choices;
  Ids positions, offsets, counts, slots(flat.size(), -1), covered;
  for (int e = 0; e < index.experts; ++e) {
    const size_t before = positions.size();
    for (int64_t b = 0; b < index.batch; ++b) {
      offsets.push_back(int32_t(positions.size()));
      for (int64_t i = 0; i < entries; ++i) {
        if (flat[size_t(b * entries + i)] != e) continue;
        slots[size_t(b * entries + i)] = int32_t(positions.size());
        positions.push_back(int32_t(i / index.choices));
      }
    }
    counts.push_back(int32_t(positions.size() - before));
  }
  const auto routed = int32_t(positions.size());
  offsets.push_back(routed);
  positions.resize(flat.size(), -1);
  EXPECT_EQ(index.positions.to_vector<int32_t>(), positions) << what;
  EXPECT_EQ(index.offsets.to_vector<int32_t>(), offsets) << what;
  EXPECT_EQ(index.counts.to_vector<int32_t>(), counts) << what;
  EXPECT_EQ(index.slots.to_vector<int32_t>(), slots) << what;

  // Tiles partition the slots in order, each within one group.
  const Ids tiles = index.tiles.to_vector<int32_t>();
  const Ids tile_offsets = index.tile_offsets.to_vector<int32_t>();
  int32_t next = 0;
  const size_t used = size_t(tile_offsets.back());
  for (size_t t = 0; t < tiles.size() / 4; ++t) {
    const int32_t expert = tiles[4 * t], batch = tiles[4 * t + 1], count = tiles[4 * t + 3];
    if (t >= used) {
      EXPECT_EQ(Ids(&tiles[4 * t], &tiles[4 * t] + 4), (Ids{-1, 0, 0, 0})) << what;
      continue;
    }
    ASSERT_TRUE(count >= 1 && count <= index.tile) << what;
    EXPECT_EQ(tiles[4 * t + 2], next) << what;
    next += count;
    const auto group = size_t(int64_t(expert) * index.batch + batch);
    EXPECT_TRUE(next - count >= offsets[group] && next <= offsets[group + 1]) << what;
    EXPECT_TRUE(
        tile_offsets[size_t(expert)] <= int32_t(t) && int32_t(t) < tile_offsets[size_t(expert) + 1])
        << what;
  }
  EXPECT_EQ(next, routed) << what;
}

TEST(RoutingIndex, MatchesAPlainWalk) {
  struct Case {
    Shape shape;
    int experts, tile;
  };
  const Case cases[] = {
      {{1, 1}, 1, 64},
      {{1, 4}, 3, 2},
      {{2, 7}, 2, 64},
      {{3, 100}, 3, 16},
      {{2, 50, 2}, 8, 16},
      {{1, 4096}, 3, 64},
      {{2, 4097}, 33, 64},
      {{1, 12305}, 257, 16},
      {{3, 1400, 3}, 512, 64},
      {{300, 1}, 3, 64},
      {{700, 30}, 3, 64},
      {{0, 5}, 3, 64},
      {{3, 0}, 3, 64},
      {{2, 3, 0}, 4, 64},
      {{2, 9000}, 3, 1 << 30}};
  for (const auto& [shape, experts, tile] : cases) {
    const Tensor ids = testing::random_ids(shape, experts, 5);
    const std::string what = to_string(shape) + " " + std::to_string(experts);
    expect_valid(routing_index(ids, experts, {.tile = tile}), ids, what);
  }
}

// Case E1: all tokens to one expert, whichever; and none to any.
TEST(RoutingIndex, OneExpertTakesAll) {
  const RoutingIndex only = routing_index(row({0, 0, 0, 0}), 1, {.tile = 16});
  EXPECT_EQ(only.positions.to_vector<int32_t>(), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(only.tiles.to_vector<int32_t>(), (Ids{0, 0, 0, 4}));
  for (const int32_t expert : {0, 1, 2, -1}) {
    const Tensor ids = row({expert, expert, expert, expert});
    expect_valid(routing_index(ids, 3, {.tile = 3}), ids, std::to_string(expert));
  }
}

// Case E2: -1 is dropped, never used as an index.
TEST(RoutingIndex, DroppedTokensHaveNoSlot) {
  const RoutingIndex index = routing_index(row({-1, 2, 0, -1, 1, 0}), 3);
  EXPECT_EQ(index.counts.to_vector<int32_t>(), (Ids{2, 1, 1}));
  EXPECT_EQ(index.positions.to_vector<int32_t>(), (Ids{2, 5, 4, 1, -1, -1}));
  EXPECT_EQ(index.slots.to_vector<int32_t>(), (Ids{-1, 3, 0, -1, 2, 1}));
}

// Case E15: token order within an expert, and a permutation that its inverse undoes.
TEST(RoutingIndex, IsStable) {
  constexpr int64_t kTokens = 100000;
  const Tensor ids = testing::random_ids({1, kTokens}, 3, 8, false);
  const RoutingIndex index = routing_index(ids, 3);
  const Ids positions = index.positions.to_vector<int32_t>();
  const Ids slots = index.slots.to_vector<int32_t>();
  for (int64_t t = 0; t < kTokens; ++t) ASSERT_EQ(positions[size_t(slots[size_t(t)])], t);
  for (int e = 0; e < 3; ++e) {
    const auto list = index.queries(e);
    const auto bounds = list.offsets.to_vector<int32_t>();
    for (int32_t s = bounds[0] + 1; s < bounds[1]; ++s) {
      ASSERT_LT(positions[size_t(s) - 1], positions[size_t(s)]);
      ASSERT_EQ(ids.data<int32_t>()[positions[size_t(s)]], e);
    }
  }
}

TEST(RoutingIndex, QueriesOfAnExpertAreViewsOfTheLists) {
  const Tensor ids = testing::random_ids({3, 20}, 4, 3);
  const RoutingIndex index = routing_index(ids, 4);
  const auto list = index.queries(2);
  EXPECT_EQ(list.offsets.shape(), Shape{4});
  EXPECT_EQ(list.offsets.data<int32_t>(), index.offsets.data<int32_t>() + 2 * 3);
  EXPECT_TRUE(list.positions.same_as(index.positions));
  EXPECT_EQ(index.rows(2), list.offsets.data<int32_t>()[3] - list.offsets.data<int32_t>()[0]);
}

TEST(RoutingIndex, IsTheSameForAnyThreadsAndStrides) {
  const Tensor ids = testing::random_ids({3, 9001}, 5, 6);
  const RoutingIndex reference = routing_index(ids, 5);
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    CpuContext context{pool};
    const ContextScope scope(context);
    const RoutingIndex index = routing_index(ids, 5);
    EXPECT_TRUE(testing::bit_equal(index.positions, reference.positions));
    EXPECT_TRUE(testing::bit_equal(index.slots, reference.slots));
    EXPECT_TRUE(testing::bit_equal(index.tiles, reference.tiles));
  }
  const Tensor transposed = ids.alias({9001, 3}, {1, 9001}, 0);
  expect_valid(routing_index(transposed, 5), transposed, "transposed");
}

TEST(RoutingIndex, OutlivesChangesToTheIds) {
  const Tensor ids = row({0, 1, 0});
  const RoutingIndex index = routing_index(ids, 2);
  ids.data<int32_t>()[1] = 77;
  EXPECT_EQ(index.ids.to_vector<int32_t>(), (Ids{0, 1, 0}));
}

TEST(RoutingIndex, Throws) {
  SLUICE_EXPECT_THROW(routing_index(Tensor(), 3), ArgumentError, "routing_index: ids");
  SLUICE_EXPECT_THROW(routing_index(zeros({2, 3}), 3), DTypeError, "ids must be i32, got f32");
  SLUICE_EXPECT_THROW(
      routing_index(zeros({3}, {DType::i32, {}}), 3), ShapeError, "(B, T) or (B, T, K), got (3)");
  SLUICE_EXPECT_THROW(
      routing_index(zeros({1, 1, 513}, {DType::i32, {}}), 3), ShapeError, "at most 512 choices");
  SLUICE_EXPECT_THROW(
      routing_index(row({0}), 0), ArgumentError, "experts must be in 1..512, got 0");
  SLUICE_EXPECT_THROW(routing_index(row({0}), 513), ArgumentError, "got 513");
  SLUICE_EXPECT_THROW(routing_index(row({0}), 1, {.tile = 0}), ArgumentError, "tile must be >= 1");
  SLUICE_EXPECT_THROW(
      routing_index(row({0, 1, 3, -2}), 3), ArgumentError, "must be in [-1, 3), got 3 at entry 2");
  SLUICE_EXPECT_THROW(routing_index(row({0, -2}), 3), ArgumentError, "got -2 at entry 1");
  // The first of several, from different pieces.
  Tensor ids = testing::random_ids({2, 9000}, 3, 1);
  ids.data<int32_t>()[17000] = 9;
  ids.data<int32_t>()[4100] = 8;
  SLUICE_EXPECT_THROW(routing_index(ids, 3), ArgumentError, "got 8 at entry 4100");
  const Tensor large = testing::sparse_zeros({1, int64_t{1} << 31}, DType::i32);
  SLUICE_EXPECT_THROW(routing_index(large, 3), ShapeError, "fewer than 2^31 entries");
}

}  // namespace
}  // namespace sluice
