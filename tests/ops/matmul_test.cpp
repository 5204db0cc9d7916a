#include "ops/matmul.h"

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"

namespace sluice {
namespace {

using ops::matmul;
using ops::MatmulOptions;
using testing::near;

constexpr TensorOptions kF64{DType::f64, {}};
constexpr MatmulOptions kTransposes[] = {
    {false, false}, {true, false}, {false, true}, {true, true}};

// Swaps the last two axes; a view.
Tensor swapped(const Tensor& t) {
  std::vector<int64_t> dims(t.shape().dims().begin(), t.shape().dims().end());
  Strides strides = t.strides();
  const size_t last = dims.size() - 1;
  std::swap(dims[last], dims[last - 1]);
  std::swap(strides[last], strides[last - 1]);
  return t.alias(Shape(dims), strides, t.offset());
}

// a (batches, M, K), b (batches, K, N), both dense, untransposed and not broadcast.
std::vector<double> reference(const Tensor& a, const Tensor& b) {
  const auto xs = a.to_vector<double>();
  const auto ys = b.to_vector<double>();
  const size_t m = size_t(a.size(-2)), k = size_t(a.size(-1)), n = size_t(b.size(-1));
  const size_t batches = m * n == 0 ? 0 : xs.size() / (m * k);
  std::vector<double> out(batches * m * n);
  for (size_t row = 0; row < batches * m; ++row) {
    const double* y = ys.data() + row / m * k * n;
    for (size_t q = 0; q < k; ++q) {
      for (size_t j = 0; j < n; ++j) out[row * n + j] += xs[row * k + q] * y[q * n + j];
    }
  }
  return out;
}

// Leading axes of `t` repeated so that its batches are those of `batch`.
Tensor repeated(const Tensor& t, const std::vector<int64_t>& batch) {
  std::vector<int64_t> dims = batch;
  dims.insert(dims.end(), {t.size(-2), t.size(-1)});
  Strides strides{};
  const size_t missing = dims.size() - size_t(t.rank());
  for (size_t axis = missing; axis < dims.size(); ++axis) {
    const bool one = t.shape()[int(axis - missing)] == 1 && dims[axis] != 1;
    strides[axis] = one ? 0 : t.strides()[axis - missing];
  }
  return clone(t.alias(Shape(dims), strides, t.offset()));
}

struct Case {
  std::vector<int64_t> batch_a, batch_b, batch;
  int64_t m, n, k;
};

// Broadcast on either side, in the middle and by rank; one row, ragged and exact tiles.
const Case kCases[] = {
    {{}, {}, {}, 1, 1, 1},
    {{}, {}, {}, 8, 32, 16},
    {{}, {}, {}, 67, 35, 20},
    {{3}, {3}, {3}, 5, 7, 4},
    {{3}, {}, {3}, 9, 6, 5},
    {{}, {3}, {3}, 2, 11, 5},
    {{2, 3}, {1, 3}, {2, 3}, 3, 4, 6},
    {{2, 1, 2}, {3, 1}, {2, 3, 2}, 4, 3, 2},
    {{2, 1}, {1, 3}, {2, 3}, 2, 3, 9}};

Shape with(std::vector<int64_t> batch, int64_t rows, int64_t columns) {
  batch.insert(batch.end(), {rows, columns});
  return Shape(batch);
}

TEST(Matmul, MatchesItsFormulaAndItsFiniteDifferences) {
  for (const Case& c : kCases) {
    for (const MatmulOptions& options : kTransposes) {
      const bool ta = options.transpose_a, tb = options.transpose_b;
      const Tensor a = randn(with(c.batch_a, ta ? c.k : c.m, ta ? c.m : c.k), 1, 0, kF64);
      const Tensor b = randn(with(c.batch_b, tb ? c.n : c.k, tb ? c.k : c.n), 1, 1, kF64);
      const auto expected =
          reference(repeated(ta ? swapped(a) : a, c.batch), repeated(tb ? swapped(b) : b, c.batch));
      const Tensor out = matmul(a, b, options);
      EXPECT_TRUE(out.shape() == with(c.batch, c.m, c.n));
      EXPECT_TRUE(near(out, expected, testing::tolerance_for(DType::f64, c.k)));
      EXPECT_TRUE(testing::gradcheck_passes(
          [&](const auto& in) { return std::vector{matmul(in[0], in[1], options)}; }, {a, b}));
    }
  }
}

TEST(Matmul, DTypesAndThreadCountsAgree) {
  const std::vector<std::vector<Tensor>> tables{
      {randn({2, 5, 33}, 2, 0, kF64), randn({2, 33, 9}, 2, 1, kF64)},
      {randn({3, 70, 40}, 2, 0, kF64), randn({40, 50}, 2, 1, kF64)},
      {randn({2, 1, 9, 40}, 2, 0, kF64), randn({3, 40, 20}, 2, 1, kF64)},
      {randn({100, 2100}, 2, 0, kF64), randn({2100, 40}, 2, 1, kF64)}};
  for (const auto& inputs : tables) {
    const auto function = [](const std::vector<Tensor>& in) {
      return std::vector{matmul(in[0], in[1])};
    };
    testing::expect_dtypes_agree(function, inputs, inputs[0].size(-1) * 3);
    testing::expect_same_bits_for_any_threads(function, inputs);
  }
}

TEST(Matmul, ViewsGiveTheSameAsCopies) {
  const Tensor big = randn({3, 12, 4, 20}, 3, 0, kF64);
  // Heads before tokens: (B, H, T, D) over (B, T, H, D) memory.
  const Tensor heads = big.alias({3, 4, 12, 20}, {960, 20, 80, 1}, 0);
  const Tensor gram = matmul(heads, heads, {.transpose_b = true});
  EXPECT_TRUE(near(gram, matmul(clone(heads), clone(heads), {.transpose_b = true}), {1e-12, 0}));
  EXPECT_TRUE(near(matmul(heads, swapped(heads)), gram, {1e-12, 0}));
  // Every second column: no axis is dense.
  const Tensor sparse = big.alias({3, 4, 12, 10}, {960, 20, 80, 2}, 0);
  EXPECT_TRUE(near(
      matmul(sparse, swapped(sparse)), matmul(clone(sparse), swapped(clone(sparse))), {1e-12, 0}));
}

// Batches that lie one after another are merged into one product; with gaps they must not be.
TEST(Matmul, GapsBetweenBatches) {
  const Tensor memory = randn({3, 7, 6}, 3, 0, kF64);
  const Tensor a = memory.alias({3, 5, 4}, {42, 6, 1}, 0);
  const Tensor shared = randn({4, 6}, 3, 1, kF64);
  EXPECT_TRUE(testing::bit_equal(matmul(a, shared), matmul(clone(a), shared)));

  const auto grad_of_shared = [&](const Tensor& left, const Tensor& grad_out) {
    const Tensor leaf = autograd::set_requires_grad(clone(shared));
    autograd::backward(matmul(left, leaf), grad_out);
    return autograd::grad(leaf);
  };
  const Tensor grad_out = memory.alias({3, 5, 6}, {42, 6, 1}, 6);
  const Tensor expected = grad_of_shared(clone(a), clone(grad_out));
  EXPECT_TRUE(near(grad_of_shared(a, clone(grad_out)), expected, {1e-12, 0}));
  EXPECT_TRUE(near(grad_of_shared(clone(a), grad_out), expected, {1e-12, 0}));
}

// Rounded to bf16 after each of 64 products the sum would be off by several times its own rounding.
TEST(Matmul, Bf16SumsOverBatchesAreWide) {
  testing::expect_dtypes_agree(
      [](const std::vector<Tensor>& in) {
        return std::vector{matmul(in[0], in[1], {.transpose_a = true})};
      },
      {randn({64, 8, 4}, 4, 0, kF64), randn({8, 60}, 4, 1, kF64)},
      256);
}

TEST(Matmul, EmptyAxes) {
  EXPECT_EQ(matmul(empty({0, 3}), empty({3, 4})).numel(), 0);
  EXPECT_EQ(matmul(empty({0, 2, 3}), empty({3, 4})).numel(), 0);
  for (const float value : matmul(empty({2, 3, 0}), empty({0, 4})).to_vector<float>()) {
    EXPECT_EQ(value, 0);
  }
  EXPECT_TRUE(testing::gradcheck_passes(
      [](const auto& in) { return std::vector{matmul(in[0], in[1])}; },
      {empty({0, 2, 3}, kF64), randn({3, 4}, 1, 0, kF64)}));
}

TEST(Matmul, RefusesWhatDoesNotFit) {
  const Tensor a = randn({2, 3, 4}, 1);
  SLUICE_EXPECT_THROW(matmul(randn({4}, 1), a), ShapeError, "a must have rank >= 2");
  SLUICE_EXPECT_THROW(matmul(a, randn({4}, 1)), ShapeError, "b must have rank >= 2");
  SLUICE_EXPECT_THROW(matmul(a, randn({3, 5}, 1)), ShapeError, "summed axis of b must be 4, got 3");
  SLUICE_EXPECT_THROW(matmul(a, randn({5, 4, 2}, 1)), ShapeError, "matmul");
  SLUICE_EXPECT_THROW(matmul(a, randn({4, 2}, 1, 0, kF64)), DTypeError, "b must be f32");
  SLUICE_EXPECT_THROW(matmul(Tensor(), a), ArgumentError, "a must be a tensor");
  SLUICE_EXPECT_THROW(matmul(empty({2, 2}, {DType::i32, {}}), a), DTypeError, "must be floating");
  const Tensor elsewhere = empty({4, 2}, {DType::f32, {DeviceType::simt}});
  SLUICE_EXPECT_THROW(matmul(a, elsewhere), DeviceError, "b must be on cpu");
}

}  // namespace
}  // namespace sluice
