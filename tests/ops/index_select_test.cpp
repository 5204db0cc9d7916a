#include "ops/index_select.h"

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "ops/view.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"
#include "tests/support/strided.h"

namespace sluice::testing {
namespace {

Tensor ids_of(const std::vector<int32_t>& ids) { return from_values(ids, {int64_t(ids.size())}); }

struct Case {
  Shape shape;
  int axis;
  std::vector<int32_t> ids;
};
const std::vector<Case> kCases = {
    {{1}, 0, {0}},
    {{4}, 0, {3, 3, -1, 0}},
    {{3, 5}, 1, {4, 0, -1, 4, 4, 2}},
    {{3, 5}, 0, {2, 2, 2, 0}},
    {{2, 6, 70}, 1, {5, -1, 0, 5, 1}},
    {{2, 3, 33}, -1, {32, 0, 31, 0}},
    {{2, 3, 4}, 0, {}},
    {{0, 3}, 1, {2, 1}},
    {{2, 0, 3}, 1, {-1, -1}},
};

autograd::GradcheckFunction function_of(const Case& c) {
  return [&c](const std::vector<Tensor>& x) {
    return std::vector{ops::index_select(x[0], c.axis, ids_of(c.ids))};
  };
}

TEST(IndexSelect, PicksEntriesInEveryDType) {
  for (const Case& c : kCases) {
    for (const DType dtype : {DType::u8, DType::bf16, DType::f32, DType::i64}) {
      const Tensor x = counting(c.shape, dtype);
      const Tensor out = ops::index_select(x, c.axis, ids_of(c.ids));
      EXPECT_EQ(out.size(c.axis), int64_t(c.ids.size()));
      for (size_t i = 0; i < c.ids.size(); ++i) {
        const Tensor entry = ops::select(out, c.axis, int64_t(i));
        const auto expected = c.ids[i] < 0 ? std::vector<double>(size_t(entry.numel()), 0.0)
                                           : values_of(ops::select(x, c.axis, c.ids[i]));
        EXPECT_EQ(values_of(entry), expected) << to_string(c.shape) << " " << i;
      }
      EXPECT_TRUE(bit_equal(ops::index_select(strided(x), c.axis, ids_of(c.ids)), out));
      EXPECT_TRUE(bit_equal(
          ops::index_select(x, c.axis, strided(to_dtype(ids_of(c.ids), DType::i64))), out));
    }
  }
}

TEST(IndexSelect, Gradients) {
  for (const Case& c : kCases) {
    EXPECT_TRUE(gradcheck_passes(function_of(c), {normal(c.shape)})) << to_string(c.shape);
  }
}

TEST(IndexSelect, F32AndBf16AgreeWithF64) {
  for (const Case& c : kCases) expect_dtypes_agree(function_of(c), {normal(c.shape)}, 6);
}

// Case E9: 512 gradients of 1 into one bf16 entry; a bf16 accumulator would stop at 256.
TEST(IndexSelect, RepeatedIdsAreSummedInF32) {
  const Tensor x = autograd::set_requires_grad(zeros({3, 5}, {DType::bf16, {}}));
  const Tensor y = ops::index_select(x, 0, zeros({512}, {DType::i32, {}}));
  autograd::backward(y, full(y.shape(), 1, {DType::bf16, {}}));
  const auto grad = values_of(autograd::grad(x));
  for (size_t i = 0; i < 15; ++i) EXPECT_EQ(grad[i], i < 5 ? 512 : 0);
}

TEST(IndexSelect, APermutationAndItsInverseAreTheIdentity) {
  const Tensor x = counting({6, 4});
  const Tensor there = ops::index_select(x, 0, ids_of({3, 0, 5, 1, 4, 2}));
  EXPECT_TRUE(bit_equal(ops::index_select(there, 0, ids_of({1, 3, 5, 0, 4, 2})), x));
}

TEST(IndexSelect, SameBitsForAnyThreads) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 700; ++i) ids.push_back(i * i % 97 - 1);
  const Case c{{3, 96, 130}, 1, ids};
  expect_same_bits_for_any_threads(function_of(c), {normal(c.shape)});
}

TEST(IndexSelect, Throws) {
  const Tensor x = zeros({2, 3}), ids = ids_of({0});
  SLUICE_EXPECT_THROW(
      ops::index_select(x, 1, ids_of({0, 3})),
      ArgumentError,
      "ids must be in [-1, 3), got 3 at position 1");
  SLUICE_EXPECT_THROW(ops::index_select(x, 1, ids_of({-2})), ArgumentError, "got -2 at position 0");
  SLUICE_EXPECT_THROW(
      ops::index_select(x, 0, from_values(std::vector<int64_t>{int64_t{1} << 40}, {1})),
      ArgumentError,
      "got 1099511627776");
  SLUICE_EXPECT_THROW(ops::index_select(zeros({0}), 0, ids), ArgumentError, "[-1, 0), got 0");
  SLUICE_EXPECT_THROW(ops::index_select(x, 2, ids), ShapeError, "index_select: axis");
  SLUICE_EXPECT_THROW(
      ops::index_select(x, 0, zeros({1, 1}, {DType::i32, {}})), ShapeError, "ids must be (N)");
  SLUICE_EXPECT_THROW(
      ops::index_select(x, 0, zeros({1})), DTypeError, "ids must be i32 or i64, got f32");
  SLUICE_EXPECT_THROW(ops::index_select({}, 0, ids), ArgumentError, "x must be a tensor");
  SLUICE_EXPECT_THROW(ops::index_select(x, 0, {}), ArgumentError, "ids must be a tensor");
}

}  // namespace
}  // namespace sluice::testing
