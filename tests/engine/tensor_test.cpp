#include "engine/tensor.h"

#include <cmath>

#include <gtest/gtest.h>

#include "engine/errors.h"

namespace sluice {
namespace {

TEST(Tensor, FreshMemoryIsPoisoned) {
  const Tensor tensor = empty({3, 5});
  for (const float value : tensor.to_vector<float>()) EXPECT_TRUE(std::isnan(value));
}

TEST(Tensor, ViewOutsideItsStorageIsRefused) {
  const Tensor tensor = zeros({4, 4});
  EXPECT_THROW((void)tensor.alias({4, 5}, {4, 1}, 0), ShapeError);
  EXPECT_THROW((void)tensor.alias({4, 4}, {4, 1}, 1), ShapeError);
  EXPECT_NO_THROW((void)tensor.alias({4, 4}, {-4, 1}, 12));
}

TEST(Tensor, TransposedCopyIsInRowMajorOrder) {
  const Tensor tensor = from_values<int32_t>(std::vector<int32_t>{1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor transposed = tensor.alias({3, 2}, {1, 3}, 0);
  EXPECT_FALSE(transposed.contiguous());
  EXPECT_EQ(transposed.to_vector<int32_t>(), (std::vector<int32_t>{1, 4, 2, 5, 3, 6}));
}

}  // namespace
}  // namespace sluice
