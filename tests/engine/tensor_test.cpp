// Handles, views, factories and the loops over strided tensors.
#include "engine/tensor.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "engine/errors.h"
#include "tests/support/compare.h"

namespace sluice {
namespace {

using Ints = std::vector<int32_t>;

Tensor counting(const Shape& shape) {
  Ints values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = int32_t(i);
  return from_values<int32_t>(values, shape);
}

TEST(Tensor, FreshMemoryIsPoisoned) {
  const Tensor tensor = empty({3, 5});
  for (const float value : tensor.to_vector<float>()) EXPECT_TRUE(std::isnan(value));
}

TEST(Tensor, HandlesNameOneTensor) {
  const Tensor a = zeros({2});
  const Tensor b = a;
  EXPECT_TRUE(a.same_as(b));
  EXPECT_FALSE(a.unique());
  fill(b, 3);
  EXPECT_EQ(a.to_vector<float>(), (std::vector<float>{3, 3}));
  EXPECT_FALSE(a.detach().same_as(a));
  EXPECT_FALSE(Tensor().defined());
  EXPECT_EQ(describe(Tensor()), "undefined");
  EXPECT_EQ(describe(a), "f32 (2) on cpu");
  const Tensor alone = zeros({2});
  EXPECT_TRUE(alone.unique());
  const Tensor view = alone.detach();
  EXPECT_FALSE(alone.unique());
}

TEST(Tensor, ViewOutsideItsStorageIsRefused) {
  const Tensor tensor = zeros({4, 4});
  EXPECT_THROW((void)tensor.alias({4, 5}, {4, 1}, 0), ShapeError);
  EXPECT_THROW((void)tensor.alias({4, 4}, {4, 1}, 1), ShapeError);
  EXPECT_THROW((void)tensor.alias({4, 4}, {-4, 1}, 11), ShapeError);
  EXPECT_NO_THROW((void)tensor.alias({4, 4}, {-4, 1}, 12));
  EXPECT_NO_THROW((void)tensor.alias({4, 0}, {4, 1}, 99));
  // Products and sums that wrap around to something inside.
  const int64_t quarter = int64_t{1} << 62;
  EXPECT_THROW((void)tensor.alias({5}, {quarter}, 0), ShapeError);
  EXPECT_THROW((void)tensor.alias({2, 2, 2}, {quarter, quarter, 1}, 0), ShapeError);
  EXPECT_THROW((void)tensor.alias({5}, {-quarter}, 0), ShapeError);
}

TEST(Tensor, SizesAndStridesCountFromEitherEnd) {
  const Tensor tensor = zeros({2, 3, 5});
  EXPECT_EQ(tensor.size(-1), 5);
  EXPECT_EQ(tensor.stride(-2), 5);
  EXPECT_EQ(tensor.stride(0), 15);
  SLUICE_EXPECT_THROW(tensor.size(3), ShapeError, "size: axis must be in [-3, 3), got 3");
  SLUICE_EXPECT_THROW(tensor.stride(-4), ShapeError, "stride: axis must be in");
}

TEST(Tensor, ContiguousIgnoresExtentsOfOneAndEmptyTensors) {
  const Tensor tensor = zeros({24});
  EXPECT_TRUE(tensor.alias({4, 1, 6}, {6, 99, 1}, 0).contiguous());
  EXPECT_TRUE(tensor.alias({4, 0, 6}, {1, 2, 3}, 0).contiguous());
  EXPECT_TRUE(tensor.alias({}, {}, 5).contiguous());
  EXPECT_FALSE(tensor.alias({4, 3}, {6, 1}, 0).contiguous());
  EXPECT_FALSE(tensor.alias({4, 6}, {1, 4}, 0).contiguous());
  EXPECT_FALSE(tensor.alias({4, 6}, {0, 1}, 0).contiguous());
}

TEST(Tensor, CopiesAreRowMajorWhateverTheStrides) {
  const Tensor tensor = counting({2, 3});
  const Tensor transposed = tensor.alias({3, 2}, {1, 3}, 0);
  EXPECT_FALSE(transposed.contiguous());
  EXPECT_EQ(transposed.to_vector<int32_t>(), (Ints{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(clone(transposed).strides()[0], 2);
  EXPECT_EQ(tensor.alias({2, 3}, {-3, -1}, 5).to_vector<int32_t>(), (Ints{5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(tensor.alias({2, 3}, {0, 1}, 3).to_vector<int32_t>(), (Ints{3, 4, 5, 3, 4, 5}));
  EXPECT_TRUE(to_contiguous(tensor).same_as(tensor));
  EXPECT_FALSE(clone(tensor).same_as(tensor));
  EXPECT_EQ(counting({2, 0, 3}).to_vector<int32_t>(), Ints{});
}

TEST(Tensor, LargeCopiesGoThroughAllChunks) {
  const int64_t rows = 300;
  const int64_t columns = 257;  // ragged against the size of a chunk
  const Tensor tensor = counting({rows, columns});
  const Ints copied = tensor.alias({columns, rows}, {1, columns}, 0).to_vector<int32_t>();
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) {
      ASSERT_EQ(copied[size_t(c * rows + r)], r * columns + c);
    }
  }
}

TEST(Tensor, IndicesBeyond32Bits) {
  // 2^33 elements in 16 bytes: sizes, offsets and bounds, without the memory.
  const int64_t side = int64_t{1} << 31;
  const Tensor tensor = from_values<float>({1, 2, 3, 4}, {4});
  const Tensor wide = tensor.alias({side, 4}, {0, 1}, 0);
  EXPECT_EQ(wide.numel(), int64_t{1} << 33);
  EXPECT_FALSE(wide.contiguous());
  EXPECT_EQ(wide.alias({1, 4}, {0, 1}, 0).to_vector<float>(), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_THROW((void)tensor.alias({side, 4}, {1, 1}, 0), ShapeError);
  EXPECT_THROW((void)tensor.alias({side, 3}, {2, 1}, 0), ShapeError);  // 2^32 + 1 in 32 bits is 1
  SLUICE_EXPECT_THROW(
      empty({int64_t{1} << 61}, {DType::f64, {}}), ShapeError, "must fit in 63 bits");
}

TEST(Tensor, WritesThroughViewsBumpTheVersion) {
  const Tensor tensor = counting({2, 3});
  const uint64_t version = tensor.storage()->version();
  const Tensor column = tensor.alias({2}, {3}, 1);
  fill(column, 9);
  EXPECT_EQ(tensor.to_vector<int32_t>(), (Ints{0, 9, 2, 3, 9, 5}));
  copy_into(column, from_values<int32_t>({7, 8}, {2}));
  accumulate_into(column, from_values<int32_t>({10, 20}, {2}));
  EXPECT_EQ(tensor.to_vector<int32_t>(), (Ints{0, 17, 2, 3, 28, 5}));
  EXPECT_EQ(tensor.storage()->version(), version + 3);
}

TEST(Tensor, AccumulationOfBFloat16RoundsOnce) {
  const Tensor sum = full({1}, 256, {DType::bf16, {}});
  accumulate_into(sum, full({1}, 1, {DType::bf16, {}}));  // a tie: to even
  EXPECT_EQ(float(sum.item<bfloat16>()), 256.0f);
  accumulate_into(sum, full({1}, 3, {DType::bf16, {}}));
  EXPECT_EQ(float(sum.item<bfloat16>()), 260.0f);
}

TEST(Tensor, FactoriesFill) {
  EXPECT_EQ(zeros({3}, {DType::i64, {}}).to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 0}));
  EXPECT_EQ(full({2}, 300, {DType::u8, {}}).to_vector<uint8_t>(), (std::vector<uint8_t>{255, 255}));
  EXPECT_EQ(full({}, -2.5, {DType::f64, {}}).item<double>(), -2.5);
  EXPECT_EQ(
      float(full({1}, 1.0 + 0x1p-8 + 0x1p-40, {DType::bf16, {}}).item<bfloat16>()), 1.0f + 0x1p-7f);
  const Tensor like = zeros_like(counting({2, 3}).alias({3, 2}, {1, 3}, 0));
  EXPECT_EQ(like.shape(), Shape({3, 2}));
  EXPECT_EQ(like.dtype(), DType::i32);
  EXPECT_TRUE(like.contiguous());
}

TEST(Tensor, MisuseIsNamed) {
  const Tensor tensor = zeros({2, 3});
  SLUICE_EXPECT_THROW(tensor.data<double>(), DTypeError, "dtype must be f64, got f32");
  SLUICE_EXPECT_THROW(tensor.to_vector<int32_t>(), DTypeError, "dtype must be i32, got f32");
  SLUICE_EXPECT_THROW(
      tensor.item<float>(), ShapeError, "item: tensor must have one element, got shape (2, 3)");
  SLUICE_EXPECT_THROW(
      from_values<float>({1, 2}, {3}), ShapeError, "from_values: shape (3) must hold 2 values");
  SLUICE_EXPECT_THROW(
      (copy_into(tensor, zeros({3, 2})), 0), ShapeError, "copy_into: shapes must be equal");
  SLUICE_EXPECT_THROW(
      (accumulate_into(tensor, zeros({2, 3}, {DType::f64, {}})), 0),
      DTypeError,
      "accumulate_into: dtypes must be equal, got f32 and f64");
  SLUICE_EXPECT_THROW(
      empty({2}, {DType::f32, {DeviceType::cuda, 0}}),
      DeviceError,
      "empty: not available on device cuda:0");
}

TEST(Storage, OutlivesItsTensorsAndItsOwnerOutlivesIt) {
  auto owner = std::make_shared<std::vector<float>>(4, 1.5f);
  const std::weak_ptr<std::vector<float>> watch = owner;
  Tensor tensor;
  {
    auto storage = std::make_shared<Storage>(owner->data(), 16, Device{}, owner);
    tensor = Tensor(std::move(storage), DType::f32, {4}, contiguous_strides({4}), 0);
  }
  owner.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(tensor.to_vector<float>(), (std::vector<float>{1.5f, 1.5f, 1.5f, 1.5f}));
  const Tensor view = tensor.alias({2}, {2}, 1);
  tensor = Tensor();
  EXPECT_EQ(view.to_vector<float>(), (std::vector<float>{1.5f, 1.5f}));
}

}  // namespace
}  // namespace sluice
