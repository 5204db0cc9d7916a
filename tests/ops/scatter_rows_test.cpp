#include "ops/scatter_rows.h"

#include <cstring>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "kernels/scatter_rows.h"
#include "ops/gather_rows.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"
#include "tests/support/routing.h"

namespace sluice {
namespace {

using ops::routing_index;
using ops::RoutingIndex;
using ops::scatter_rows;

constexpr TensorOptions kF64{DType::f64, {}};

std::vector<Tensor> random_rows(const RoutingIndex& index, int64_t width, DType dtype) {
  std::vector<Tensor> rows;
  for (int e = 0; e < index.experts; ++e) {
    rows.push_back(to_dtype(randn({index.rows(e), width}, 3, uint64_t(e), kF64), dtype));
  }
  return rows;
}

// The formula, from ids alone: the next row of an expert is taken at each of its decisions.
std::vector<double> reference(
    const std::vector<Tensor>& rows, const Tensor& ids, const Tensor& weights, int64_t choices) {
  const auto flat = ids.to_vector<int32_t>();
  const auto width = size_t(rows[0].size(1));
  std::vector<size_t> next(rows.size(), 0);
  std::vector<std::vector<double>> values;
  for (const Tensor& tensor : rows) values.push_back(testing::values_of(tensor));
  const std::vector<double> factors =
      weights.defined() ? testing::values_of(weights) : std::vector<double>(flat.size(), 1.0);
  std::vector<double> out(flat.size() / size_t(choices) * width);
  for (size_t i = 0; i < flat.size(); ++i) {
    if (flat[i] < 0) continue;
    const auto e = size_t(flat[i]);
    for (size_t c = 0; c < width; ++c) {
      out[i / size_t(choices) * width + c] += factors[i] * values[e][next[e] * width + c];
    }
    ++next[e];
  }
  return out;
}

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
    {{1, 150}, 2, 257}};

TEST(ScatterRows, MatchesItsFormulaAndItsFiniteDifferences) {
  for (const auto& [shape, experts, width] : kCases) {
    const Tensor ids = testing::random_ids(shape, experts, 2);
    const RoutingIndex index = routing_index(ids, experts);
    const auto rows = random_rows(index, width, DType::f64);
    const Tensor weights = randn(shape, 4, 0, kF64);
    const testing::Tolerance exact{1e-14, 1e-14};
    for (const Tensor& w : {weights, Tensor()}) {
      EXPECT_TRUE(testing::near(
          scatter_rows(rows, index, w), reference(rows, ids, w, index.choices), exact));
    }
    std::vector<Tensor> inputs = rows;
    inputs.push_back(weights);
    const auto weighted = [&](const std::vector<Tensor>& in) {
      return std::vector{scatter_rows({in.begin(), in.end() - 1}, index, in.back())};
    };
    const auto plain = [&](const std::vector<Tensor>& in) {
      return std::vector{scatter_rows(in, index)};
    };
    EXPECT_TRUE(testing::gradcheck_passes(weighted, inputs, {.full_jacobian = 300}));
    EXPECT_TRUE(testing::gradcheck_passes(plain, rows, {.full_jacobian = 300}));
    // bf16 weights, too: every input is cast.
    testing::expect_dtypes_agree(weighted, inputs, width + index.choices);
    testing::expect_same_bits_for_any_threads(weighted, inputs);
  }
}

TEST(ScatterRows, UndoesGatherBitForBit) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const Tensor ids = testing::random_ids({3, 200}, 3, 7);
    const RoutingIndex index = routing_index(ids, 3);
    const Tensor x = to_dtype(randn({3, 200, 37}, 6), dtype);
    Tensor expected = clone(x);
    for (int64_t token = 0; token < 600; ++token) {
      if (ids.data<int32_t>()[token] < 0) fill(expected.alias({37}, {1}, token * 37), 0);
    }
    EXPECT_TRUE(testing::bit_equal(scatter_rows(ops::gather_rows(x, index), index), expected));
  }
}

// Case E2: rows and gradients of dropped tokens are zero, whatever lies in fresh memory.
TEST(ScatterRows, DroppedTokensAreZero) {
  const RoutingIndex index =
      routing_index(from_values(std::vector<int32_t>{-1, 2, 0, -1, 1, 0}, {1, 6}), 3);
  const auto run = testing::run_with_grads(
      [&](const std::vector<Tensor>& in) {
        return std::vector{scatter_rows({in[0], in[1], in[2]}, index, in[3])};
      },
      {randn({2, 4}, 1, 0, kF64),
       randn({1, 4}, 1, 1, kF64),
       randn({1, 4}, 1, 2, kF64),
       randn({1, 6}, 1, 3, kF64)},
      DType::f32,
      DType::f32);
  for (const int64_t token : {0, 3}) {
    for (int64_t c = 0; c < 4; ++c) EXPECT_EQ(run.outputs[0].data<float>()[token * 4 + c], 0);
    EXPECT_EQ(run.grads[3].data<float>()[token], 0);
  }
  // A missing expert stands for rows of zeros.
  const Tensor out = scatter_rows({Tensor(), randn({1, 4}, 1), Tensor()}, index);
  for (int64_t i = 0; i < 24; ++i) EXPECT_EQ(out.data<float>()[i] == 0, i / 4 != 4) << i;
}

// Case E9: sums of bf16 rows and dot products for the weights are kept in f32.
TEST(ScatterRows, GradientsOfWeightsAreSummedInF32) {
  constexpr int64_t kTokens = 40, kWidth = 4096;
  for (const int64_t choices : {1, 2, 8}) {
    const Tensor ids = testing::random_ids({1, kTokens, choices}, 8, 3, false);
    const RoutingIndex index = routing_index(ids, 8);
    std::vector<Tensor> inputs = random_rows(index, kWidth, DType::bf16);
    const Tensor weights = rand({1, kTokens, choices}, 4);
    const Tensor grad = to_dtype(randn({1, kTokens, kWidth}, 5), DType::bf16);
    auto run = [&](DType rows_dtype, DType weights_dtype) {
      std::vector<Tensor> rows;
      for (const Tensor& tensor : inputs) rows.push_back(clone(to_dtype(tensor, rows_dtype)));
      const Tensor w = autograd::set_requires_grad(clone(to_dtype(weights, weights_dtype)));
      const Tensor out = scatter_rows(rows, index, w);
      autograd::backward(out, to_dtype(grad, rows_dtype));
      return std::pair{out, autograd::grad(w)};
    };
    const auto [out, grad_weights] = run(DType::bf16, DType::f32);
    const auto [true_out, true_grad] = run(DType::f64, DType::f64);
    EXPECT_EQ(grad_weights.dtype(), DType::f32);
    // One rounding to bf16, and where terms cancel the rounding of f32 sums of order one.
    EXPECT_TRUE(testing::near(out, true_out, {1e-6, 1.0 / 256}));
    EXPECT_TRUE(testing::near(grad_weights, true_grad, {1e-4, 1e-5}));
  }
}

// Case E6.
TEST(ScatterRows, NothingToScatter) {
  const RoutingIndex none = routing_index(empty({2, 0}, {DType::i32, {}}), 2);
  EXPECT_EQ(scatter_rows({empty({0, 4}), empty({0, 4})}, none).shape(), (Shape{2, 0, 4}));
  const RoutingIndex dropped = routing_index(full({1, 3}, -1, {DType::i32, {}}), 1);
  const Tensor out = scatter_rows({empty({0, 4})}, dropped);
  for (const float value : out.to_vector<float>()) EXPECT_EQ(value, 0);
}

// Case E7, the way back: see GatherRows.
TEST(ScatterRows, OffsetsBeyond32Bits) {
  constexpr int64_t kRows = 299594, kWidth = 7168;
  const Tensor rows = testing::sparse_zeros({kRows, kWidth}, DType::bf16);
  const Tensor last = to_dtype(randn({kWidth}, 5), DType::bf16);
  std::memcpy(rows.data<bfloat16>() + (kRows - 1) * kWidth, last.raw(), kWidth * sizeof(bfloat16));
  const int32_t id = 0, slot = kRows - 1, offsets[] = {0, kRows};
  const void* pointers[] = {rows.raw()};
  const Tensor out = empty_like(last);
  const kernels::RoutingView index{&id, &slot, offsets, 1, 1, 1, 1};
  kernels::scatter_rows(cpu_context(), {index, pointers, nullptr, out.raw(), DType::bf16, kWidth});
  EXPECT_TRUE(testing::bit_equal(out, last));
  // Backward in two calls, since the second writes over the rows that the first reads.
  void* no_rows[] = {nullptr};
  void* grad_rows[] = {rows.raw()};
  const float weight = 2;
  float grad_weight = 0;
  double expected = 0;
  for (const bfloat16 value : last.to_vector<bfloat16>()) expected += double(value) * double(value);
  kernels::scatter_rows_backward(
      cpu_context(),
      {index, last.raw(), pointers, &weight, no_rows, &grad_weight, DType::bf16, kWidth});
  EXPECT_NEAR(grad_weight, expected, 1e-5 * expected);
  kernels::scatter_rows_backward(
      cpu_context(),
      {index, last.raw(), pointers, &weight, grad_rows, nullptr, DType::bf16, kWidth});
  const bfloat16* written = rows.data<bfloat16>() + (kRows - 1) * kWidth;
  for (int64_t c = 0; c < kWidth; ++c) {
    ASSERT_EQ(float(written[c]), 2 * float(last.data<bfloat16>()[c]));
  }
}

TEST(ScatterRows, Throws) {
  const RoutingIndex index = routing_index(from_values(std::vector<int32_t>{0, 1, 1}, {1, 3}), 2);
  const Tensor one = zeros({1, 4}), two = zeros({2, 4});
  SLUICE_EXPECT_THROW(
      scatter_rows({one}, index), ArgumentError, "scatter_rows: rows must be 2 tensors, got 1");
  SLUICE_EXPECT_THROW(
      scatter_rows({Tensor(), Tensor()}, index), ArgumentError, "rows must hold a tensor");
  SLUICE_EXPECT_THROW(
      scatter_rows({two, one}, index), ShapeError, "rows must have shape (1, 4), got (2, 4)");
  SLUICE_EXPECT_THROW(
      scatter_rows({one, zeros({2, 4}, kF64)}, index), DTypeError, "rows must be f32, got f64");
  SLUICE_EXPECT_THROW(scatter_rows({zeros({1}), two}, index), ShapeError, "rows must be (N, C)");
  SLUICE_EXPECT_THROW(
      scatter_rows({one, two}, index, zeros({1, 3}, kF64)),
      DTypeError,
      "weights must be f32, got f64");
  SLUICE_EXPECT_THROW(
      scatter_rows({one, two}, index, zeros({1, 2})),
      ShapeError,
      "weights must have shape (1, 3), got (1, 2)");
}

}  // namespace
}  // namespace sluice
