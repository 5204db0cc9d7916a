#include "ops/gather_rows.h"

#include <cstring>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "kernels/gather_rows.h"
#include "ops/scatter_rows.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"
#include "tests/support/routing.h"

namespace sluice {
namespace {

using ops::gather_rows;
using ops::routing_index;
using ops::RoutingIndex;

constexpr TensorOptions kF64{DType::f64, {}};

struct Case {
  Shape ids;
  int experts;
  int64_t width;
};
const Case kCases[] = {
    {{1, 1}, 1, 1},
    {{2, 5}, 3, 4},
    {{3, 40}, 3, 33},
    {{2, 9, 2}, 4, 16},
    {{1, 30, 8}, 33, 5},
    {{2, 6}, 512, 3},
    {{1, 150}, 2, 257}};

TEST(GatherRows, MatchesAPlainWalkAndItsFiniteDifferences) {
  for (const auto& [shape, experts, width] : kCases) {
    const Tensor ids = testing::random_ids(shape, experts, 2);
    const RoutingIndex index = routing_index(ids, experts);
    const Tensor x = randn({shape[0], shape[1], width}, 1, 0, kF64);
    const auto all = gather_rows(x, index);
    ASSERT_EQ(all.size(), size_t(experts));
    const auto values = x.to_vector<double>();
    const auto flat = ids.to_vector<int32_t>();
    for (int e = 0; e < experts; ++e) {
      std::vector<double> expected;
      for (size_t i = 0; i < flat.size(); ++i) {
        const size_t token = i / size_t(index.choices) * size_t(width);
        if (flat[i] == e) {
          expected.insert(expected.end(), &values[token], &values[token] + width);
        }
      }
      EXPECT_EQ(all[size_t(e)].to_vector<double>(), expected) << e;
      if (e >= 4) continue;
      EXPECT_TRUE(testing::bit_equal(gather_rows(x, index, e), all[size_t(e)]));
    }
    const auto function = [&, routing = index](const auto& in) {
      return gather_rows(in[0], routing);
    };
    if (experts < 100) {
      EXPECT_TRUE(testing::gradcheck_passes(function, {x}, {.full_jacobian = 300}));
      testing::expect_dtypes_agree(function, {x}, index.choices);
      testing::expect_same_bits_for_any_threads(function, {x});
    }
  }
}

// One expert of several: the others' tokens get zeros, and so do all when nothing flows back.
TEST(GatherRows, GradientOfOneExpert) {
  const RoutingIndex index = routing_index(testing::random_ids({2, 20}, 3, 4), 3);
  const Tensor x = randn({2, 20, 6}, 1, 0, kF64);
  for (int e = 0; e < 3; ++e) {
    EXPECT_TRUE(testing::gradcheck_passes(
        [&](const auto& in) { return std::vector{gather_rows(in[0], index, e)}; }, {x}));
  }
}

TEST(GatherRows, TakesAnyStridesAndDTypes) {
  const RoutingIndex index = routing_index(testing::random_ids({2, 7}, 3, 4), 3);
  // One of three interleaved projections, as a slice of (B, T, 3C).
  const Tensor packed = randn({2, 7, 30}, 3);
  const Tensor middle = packed.alias({2, 7, 10}, packed.strides(), 10);
  const Tensor columns = packed.alias({2, 7, 5}, {210, 30, 6}, 0);
  for (const Tensor& view : {middle, columns}) {
    const auto strided = gather_rows(view, index);
    const auto dense = gather_rows(clone(view), index);
    for (size_t e = 0; e < 3; ++e) EXPECT_TRUE(testing::bit_equal(strided[e], dense[e]));
  }
  const Tensor bytes = from_values(std::vector<uint8_t>(14, 7), {2, 7, 1});
  for (const uint8_t value : gather_rows(bytes, index, 1).to_vector<uint8_t>()) EXPECT_EQ(value, 7);
}

// Case E6.
TEST(GatherRows, NothingToGather) {
  const RoutingIndex none = routing_index(empty({2, 0}, {DType::i32, {}}), 3);
  for (const Tensor& rows : gather_rows(empty({2, 0, 4}), none))
    EXPECT_EQ(rows.shape(), (Shape{0, 4}));
  const RoutingIndex some = routing_index(full({1, 3}, 1, {DType::i32, {}}), 3);
  const auto rows = gather_rows(randn({1, 3, 4}, 1), some);
  EXPECT_EQ(rows[0].shape(), (Shape{0, 4}));
  EXPECT_EQ(rows[1].shape(), (Shape{3, 4}));
  EXPECT_EQ(gather_rows(empty({1, 3, 0}), some)[1].shape(), (Shape{3, 0}));
}

// Case E7: the last of 299,594 rows of 7168 numbers starts beyond 2^31 elements.
TEST(GatherRows, OffsetsBeyond32Bits) {
  constexpr int64_t kRows = 299594, kWidth = 7168;
  const Tensor x = testing::sparse_zeros({1, kRows, kWidth}, DType::bf16);
  const Tensor last = to_dtype(randn({kWidth}, 5), DType::bf16);
  const size_t bytes = kWidth * sizeof(bfloat16);
  std::memcpy(x.data<bfloat16>() + (kRows - 1) * kWidth, last.raw(), bytes);
  const Tensor ids = full({1, kRows}, -1, {DType::i32, {}});
  ids.data<int32_t>()[kRows - 1] = 0;
  EXPECT_TRUE(
      testing::bit_equal(gather_rows(x, routing_index(ids, 1), 0).alias({kWidth}, {1}, 0), last));

  // The compact side: a kernel call whose one token has the last of so many slots.
  const Tensor rows = testing::sparse_zeros({kRows, kWidth}, DType::bf16);
  const int32_t id = 0, slot = kRows - 1, offsets[] = {0, kRows};
  void* pointers[] = {rows.raw()};
  const kernels::GatherRows args{
      .index = {&id, &slot, offsets, 1, 1, 1, 1},
      .x = last.raw(),
      .batch_stride = 0,
      .token_stride = 0,
      .rows = pointers,
      .row_bytes = int64_t(bytes)};
  kernels::gather_rows(cpu_context(), args);
  EXPECT_EQ(std::memcmp(rows.data<bfloat16>() + (kRows - 1) * kWidth, last.raw(), bytes), 0);
}

TEST(GatherRows, Throws) {
  const RoutingIndex index = routing_index(testing::random_ids({2, 7}, 3, 4), 3);
  SLUICE_EXPECT_THROW(
      gather_rows(Tensor(), index), ArgumentError, "gather_rows: x must be a tensor");
  SLUICE_EXPECT_THROW(
      gather_rows(zeros({2, 6, 4}), index),
      ShapeError,
      "x must have shape (2, 7, C), got (2, 6, 4)");
  SLUICE_EXPECT_THROW(gather_rows(zeros({2, 7}), index), ShapeError, "got (2, 7)");
  SLUICE_EXPECT_THROW(
      gather_rows(zeros({2, 7, 4}), index, 3), ArgumentError, "expert must be in [0, 3), got 3");
  SLUICE_EXPECT_THROW(gather_rows(zeros({2, 7, 4}), index, -1), ArgumentError, "got -1");
}

}  // namespace
}  // namespace sluice
