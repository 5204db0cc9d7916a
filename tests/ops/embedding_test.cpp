#include "ops/embedding.h"

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "engine/philox.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"

namespace sluice {
namespace {

using ops::embedding;

constexpr TensorOptions kF64{DType::f64, {}};

// `count` ids in [-1, vocabulary).
std::vector<int64_t> some_ids(int64_t count, int64_t vocabulary) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    const auto word = philox4x32({3, 0}, uint64_t(i));
    ids.push_back(int64_t(word[0] % uint64_t(vocabulary + 1)) - 1);
  }
  return ids;
}

Tensor ids_of(const std::vector<int64_t>& ids, const Shape& shape, DType dtype) {
  return to_dtype(from_values(ids, shape), dtype);
}

struct Case {
  int64_t vocabulary, width;
  Shape shape;
};

const Case kCases[] = {
    {1, 1, {1}}, {5, 3, {}}, {4, 16, {2, 7}}, {300, 70, {3, 5, 4}}, {3, 130, {2, 40}}};

TEST(Embedding, MatchesItsFormulaAndItsFiniteDifferences) {
  for (const auto& [vocabulary, width, shape] : kCases) {
    const Tensor weight = randn({vocabulary, width}, 1, 0, kF64);
    const auto values = some_ids(shape.numel(), vocabulary);
    std::vector<double> expected;
    for (const int64_t id : values) {
      for (int64_t c = 0; c < width; ++c) {
        expected.push_back(id < 0 ? 0 : weight.data<double>()[id * width + c]);
      }
    }
    for (const DType dtype : {DType::i32, DType::i64}) {
      const Tensor ids = ids_of(values, shape, dtype);
      const Tensor out = embedding(weight, ids);
      EXPECT_EQ(out.rank(), shape.rank() + 1);
      EXPECT_EQ(testing::values_of(out), expected);
    }
    const Tensor ids = from_values(values, shape);
    EXPECT_TRUE(testing::gradcheck_passes(
        [&](const auto& in) { return std::vector{embedding(in[0], ids)}; }, {weight}));
  }
}

TEST(Embedding, DTypesAndThreadCountsAgree) {
  for (const auto& [vocabulary, width, shape] : {kCases[2], kCases[3], {3, 130, {2, 400}}}) {
    const Tensor ids = ids_of(some_ids(shape.numel(), vocabulary), shape, DType::i32);
    const std::vector<Tensor> inputs{randn({vocabulary, width}, 2, 0, kF64)};
    const auto function = [&](const std::vector<Tensor>& in) {
      return std::vector{embedding(in[0], ids)};
    };
    testing::expect_dtypes_agree(function, inputs, shape.numel());
    testing::expect_same_bits_for_any_threads(function, inputs);
  }
}

// Id -1 is padding: no row is read for it and no gradient leaves it, whatever its gradient holds.
TEST(Embedding, PaddingTakesNoPart) {
  const Tensor weight = autograd::set_requires_grad(full({2, 3}, 5));
  const Tensor out = embedding(weight, ids_of({-1, 1, -1}, {3}, DType::i32));
  EXPECT_EQ(out.to_vector<float>(), (std::vector<float>{0, 0, 0, 5, 5, 5, 0, 0, 0}));
  const Tensor grad = full({3, 3}, NAN);
  for (int i = 3; i < 6; ++i) grad.data<float>()[i] = 1;
  autograd::backward(out, grad);
  EXPECT_EQ(autograd::grad(weight).to_vector<float>(), (std::vector<float>{0, 0, 0, 1, 1, 1}));
}

TEST(Embedding, StridedTableIdsAndGradients) {
  const Tensor wide = randn({4, 6}, 1, 0, kF64);
  const Tensor table = wide.alias({4, 3}, {6, 1}, 2);
  const Tensor ids = ids_of({0, 3, 2, 1, 1, 3}, {3, 2}, DType::i64);
  const Tensor turned = ids.alias({2, 3}, {1, 2}, 0);
  EXPECT_TRUE(testing::bit_equal(embedding(table, turned), embedding(clone(table), clone(turned))));
}

TEST(Embedding, NoIdsGiveZeroGradients) {
  const Tensor weight = autograd::set_requires_grad(randn({3, 4}, 1));
  const Tensor out = embedding(weight, empty({0, 5}, {DType::i32, {}}));
  EXPECT_TRUE(out.shape() == (Shape{0, 5, 4}));
  autograd::backward(out, empty({0, 5, 4}));
  EXPECT_EQ(autograd::grad(weight).to_vector<float>(), std::vector<float>(12, 0));
}

TEST(Embedding, RefusesWhatDoesNotFit) {
  const Tensor weight = randn({3, 4}, 1);
  const auto ids = [](std::vector<int64_t> values) {
    return from_values(values, {int64_t(values.size())});
  };
  SLUICE_EXPECT_THROW(
      embedding(weight, ids({0, -1, 3, 9})),
      ArgumentError,
      "must be in [-1, 3), got 3 at position 2");
  SLUICE_EXPECT_THROW(embedding(weight, ids({-2})), ArgumentError, "got -2 at position 0");
  SLUICE_EXPECT_THROW(
      embedding(weight, ids({int64_t{1} << 32})), ArgumentError, "got 4294967296 at position 0");
  SLUICE_EXPECT_THROW(
      embedding(randn({3}, 1), ids({0})), ShapeError, "weight must have shape (V, C)");
  SLUICE_EXPECT_THROW(embedding(weight, randn({2}, 1)), DTypeError, "ids must be i32 or i64");
  SLUICE_EXPECT_THROW(embedding(ids({0}), ids({0})), DTypeError, "weight must be floating");
  SLUICE_EXPECT_THROW(
      embedding(weight, empty({1}, {DType::i32, {DeviceType::simt}})),
      DeviceError,
      "ids must be on cpu");
}

}  // namespace
}  // namespace sluice
