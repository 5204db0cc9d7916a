#include "ops/top_k.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "engine/errors.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"

namespace sluice {
namespace {

using ops::top_k;

std::vector<int32_t> ids_of(const std::vector<float>& scores, int k) {
  return top_k(from_values(scores, {int64_t(scores.size())}), k).ids.to_vector<int32_t>();
}

// Case E4: every width, winners anywhere, every k.
TEST(TopK, MatchesAStableSort) {
  for (const int64_t experts : {1, 2, 3, 8, 33, 257, 512}) {
    for (const int k : {1, 2, 8, int(experts)}) {
      if (k > experts) continue;
      Tensor scores = randn({3, 5, experts}, 9, uint64_t(experts), {DType::f64, {}});
      double* data = scores.data<double>();
      // Many ties, and in one row all winners at the far end.
      for (int64_t i = 0; i < scores.numel(); ++i) data[i] = std::round(data[i] * 4) / 4;
      for (int64_t e = 300; e < experts; ++e) data[e] += 100;
      const auto [values, ids] = top_k(scores, k);
      for (int64_t row = 0; row < 15; ++row) {
        std::vector<int32_t> order(static_cast<size_t>(experts));
        std::iota(order.begin(), order.end(), 0);
        const double* s = data + row * experts;
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return s[a] > s[b]; });
        for (int j = 0; j < k; ++j) {
          ASSERT_EQ(ids.data<int32_t>()[row * k + j], order[size_t(j)]) << experts << " " << k;
          ASSERT_EQ(values.data<double>()[row * k + j], s[order[size_t(j)]]);
        }
      }
    }
  }
}

TEST(TopK, TiesAndNaN) {
  const float nan = NAN, inf = INFINITY;
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(ids_of({1, 1, 1, 1}, 2), (Ids{0, 1}));
  EXPECT_EQ(ids_of({0, 2, 2, 1}, 3), (Ids{1, 2, 3}));
  EXPECT_EQ(ids_of({0.0f, -0.0f}, 2), (Ids{0, 1}));
  EXPECT_EQ(ids_of({nan, 1, nan, -inf}, 2), (Ids{1, 3}));
  EXPECT_EQ(ids_of({nan, nan, 3, nan}, 4), (Ids{2, 0, 1, 3}));
  EXPECT_EQ(ids_of({nan, nan}, 1), (Ids{0}));
  EXPECT_EQ(ids_of({-inf, inf, nan}, 3), (Ids{1, 0, 2}));
}

TEST(TopK, Gradients) {
  const Tensor scores = randn({4, 3, 9}, 2, 0, {DType::f64, {}});
  const auto values = [](const auto& in) { return std::vector{top_k(in[0], 4).values}; };
  EXPECT_TRUE(testing::gradcheck_passes(values, {scores}));
  testing::expect_dtypes_agree(values, {scores}, 1);
  testing::expect_same_bits_for_any_threads(values, {randn({4000, 7}, 3, 0, {DType::f64, {}})});
  const Tensor transposed = scores.alias({4, 9, 3}, {27, 1, 9}, 0);
  EXPECT_TRUE(testing::bit_equal(top_k(transposed, 2).ids, top_k(clone(transposed), 2).ids));
  EXPECT_EQ(top_k(empty({0, 3}), 2).ids.shape(), (Shape{0, 2}));
}

TEST(TopK, Throws) {
  SLUICE_EXPECT_THROW(top_k(Tensor(), 1), ArgumentError, "top_k: scores must be a tensor");
  SLUICE_EXPECT_THROW(top_k(zeros({3}, {DType::i32, {}}), 1), DTypeError, "must be floating");
  SLUICE_EXPECT_THROW(top_k(zeros({}), 1), ShapeError, "top_k: scores must have rank >= 1");
  SLUICE_EXPECT_THROW(top_k(zeros({2, 3}), 4), ArgumentError, "top_k: k must be in 1..3, got 4");
  SLUICE_EXPECT_THROW(top_k(zeros({2, 3}), 0), ArgumentError, "got 0");
}

}  // namespace
}  // namespace sluice
