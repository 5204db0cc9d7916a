// The walk over strided operands visits every element once, in chunks that do not depend on the
// threads, and its offsets are right beyond 2^31 elements.
#include "engine/strided.h"

#include <mutex>
#include <numeric>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "engine/tensor.h"

namespace sluice {
namespace {

Strides strides_of(std::initializer_list<int64_t> values) {
  Strides strides{};
  std::copy(values.begin(), values.end(), strides.begin());
  return strides;
}

struct Case {
  Shape shape;
  Strides a;
  Strides b;
  int outer_rank;  // after merging
};

const Case kCases[] = {
    {{}, strides_of({}), strides_of({}), 0},
    {{1}, strides_of({7}), strides_of({3}), 0},
    {{5}, strides_of({2}), strides_of({-3}), 0},
    {{2, 3, 4}, strides_of({12, 4, 1}), strides_of({12, 4, 1}), 0},
    {{2, 1, 4}, strides_of({4, 99, 1}), strides_of({4, -5, 1}), 0},
    {{2, 3, 4}, strides_of({12, 4, 1}), strides_of({3, 1, 6}), 1},
    {{2, 3, 4}, strides_of({12, 4, 1}), strides_of({0, 4, 1}), 1},
    {{4, 3, 2}, strides_of({1, 4, 12}), strides_of({6, 2, 1}), 2},
    {{3, 2, 5, 2}, strides_of({20, 10, 2, 1}), strides_of({0, 0, 1, 5}), 2},
    {{2, 2, 2, 2, 2, 2, 2, 2},
     strides_of({1, 2, 4, 8, 16, 32, 64, 128}),
     strides_of({128, 64, 32, 16, 8, 4, 2, 1}),
     7},
    {{3, 50'000}, strides_of({50'000, 1}), strides_of({1, 3}), 1},  // long rows are cut
    {{40'000, 3}, strides_of({3, 1}), strides_of({1, 40'000}), 1},  // short rows are bundled
    {{70'001}, strides_of({1}), strides_of({0}), 0},
};

// The offsets of all elements, row-major, from the definition.
std::vector<std::pair<int64_t, int64_t>> expected_offsets(const Case& c) {
  std::vector<std::pair<int64_t, int64_t>> offsets;
  for (int64_t flat = 0; flat < c.shape.numel(); ++flat) {
    int64_t rest = flat, a = 0, b = 0;
    for (int axis = c.shape.rank() - 1; axis >= 0; --axis) {
      const int64_t index = rest % c.shape[axis];
      rest /= c.shape[axis];
      a += index * c.a[size_t(axis)];
      b += index * c.b[size_t(axis)];
    }
    offsets.emplace_back(a, b);
  }
  return offsets;
}

TEST(StridedLoop, VisitsEveryElementOnce) {
  for (const Case& c : kCases) {
    const StridedLoop<2> loop(c.shape, {c.a, c.b});
    EXPECT_EQ(loop.outer_rank, c.outer_rank) << to_string(c.shape);
    for (const int threads : {1, 3}) {
      ThreadPool pool(threads);
      std::mutex mutex;
      std::vector<std::pair<int64_t, int64_t>> seen;
      for_each_run(pool, loop, [&](const auto& offset, int64_t count) {
        const std::lock_guard lock(mutex);
        for (int64_t i = 0; i < count; ++i) {
          seen.emplace_back(
              offset[0] + i * loop.inner_stride[0], offset[1] + i * loop.inner_stride[1]);
        }
      });
      auto expected = expected_offsets(c);
      if (threads > 1) {  // chunks arrive in any order
        std::sort(seen.begin(), seen.end());
        std::sort(expected.begin(), expected.end());
      }
      EXPECT_TRUE(seen == expected) << to_string(c.shape) << " on " << threads << " threads";
    }
  }
}

TEST(StridedLoop, RunsDoNotDependOnTheThreads) {
  const StridedLoop<1> loop({7, 40'000}, {strides_of({80'000, 2})});
  std::vector<std::vector<std::pair<int64_t, int64_t>>> runs;
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    std::mutex mutex;
    runs.emplace_back();
    for_each_run(pool, loop, [&](const auto& offset, int64_t count) {
      const std::lock_guard lock(mutex);
      runs.back().emplace_back(offset[0], count);
    });
    std::sort(runs.back().begin(), runs.back().end());
    EXPECT_EQ(runs.back(), runs.front());
  }
}

TEST(StridedLoop, NoElementsNoCalls) {
  ThreadPool pool(1);
  const StridedLoop<1> loop({3, 0, 2}, {strides_of({2, 2, 1})});
  for_each_run(pool, loop, [&](const auto&, int64_t) { ADD_FAILURE(); });
}

TEST(StridedLoop, OffsetsBeyond32Bits) {
  // 3 * 2^31 elements of one repeated number, 2^33 apart in the first operand.
  const int64_t rows = 3;
  const int64_t columns = int64_t{1} << 31;
  const StridedLoop<2> loop(
      {rows, 2, columns},
      {strides_of({int64_t{1} << 33, 5, 0}), strides_of({2 * columns, columns, 1})});
  EXPECT_EQ(loop.rows, rows * 2);
  EXPECT_EQ(loop.inner, columns);
  EXPECT_EQ(loop.offsets(5), (std::array<int64_t, 2>{(int64_t{2} << 33) + 5, 5 * columns}));
  auto cursor = loop.at(0);
  for (int step = 0; step < 5; ++step) loop.advance(cursor);
  EXPECT_EQ(cursor.offset, loop.offsets(5));

  ThreadPool pool(2);
  std::mutex mutex;
  int64_t elements = 0;
  int64_t last = 0;
  for_each_run(pool, loop, [&](const auto& offset, int64_t count) {
    const std::lock_guard lock(mutex);
    elements += count;
    last = std::max(last, offset[1] + count - 1);
  });
  EXPECT_EQ(elements, rows * 2 * columns);
  EXPECT_EQ(last, rows * 2 * columns - 1);
}

}  // namespace
}  // namespace sluice
