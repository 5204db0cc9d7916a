#include "kernels/gemm.h"

#include <cmath>

#include <gtest/gtest.h>

#include "kernels/gemm_plan.h"
#include "kernels/simd/dispatch.h"
#include "tests/support/compare.h"

namespace sluice {
namespace {

using kernels::Activation;
using kernels::GemmArgs;
using kernels::SimdLevel;
using testing::near;

constexpr int64_t kPad = 3;       // elements between the rows of each operand
constexpr size_t kGuard = 64;     // bytes behind the scratch that nobody may write
constexpr double kUntouched = 9;  // fills c, its padding included

class LevelScope {
 public:
  explicit LevelScope(SimdLevel level) : outer_(kernels::simd_level()) {
    kernels::force_simd_level(level);
  }
  ~LevelScope() { kernels::force_simd_level(outer_); }

 private:
  SimdLevel outer_;
};

std::vector<SimdLevel> levels() {
  std::vector<SimdLevel> all;
  for (int i = 0; i <= int(kernels::best_simd_level()); ++i) all.push_back(SimdLevel(i));
  return all;
}

struct Case {
  int64_t batch, m, n, k;
};

// Dot products, below a tile, exact tiles, ragged ones, several strips, blocks and depths, and few
// blocks with a long sum, which is split.
const Case kCases[] = {
    {1, 1, 1, 1},
    {2, 1, 41, 70},
    {2, 7, 33, 129},
    {1, 7, 5, 600},
    {2, 8, 32, 64},
    {2, 9, 31, 5},
    {2, 67, 130, 40},
    {1, 300, 50, 20},
    {1, 67, 70, 1100},
    {1, 20, 140, 2100},
    {2, 4, 6, 0}};

// The operands of one case as their formulas see them, in f64, rounded to `dtype`.
struct Problem {
  Case shape;
  Tensor a, b, bias;  // (batch, m, k), (batch, k, n), (n)

  Problem(const Case& c, DType dtype) : shape(c) {
    const auto rounded = [&](const Shape& s, uint64_t stream) {
      return to_dtype(to_dtype(randn(s, 1, stream, {DType::f64, {}}), dtype), DType::f64);
    };
    a = rounded({c.batch, c.m, c.k}, 0);
    b = rounded({c.batch, c.k, c.n}, 1);
    bias = rounded({c.n}, 2);
  }

  std::vector<double> product() const {
    const auto [batch, m, n, k] = shape;
    std::vector<double> out(size_t(batch * m * n));
    for (int64_t row = 0; row < batch * m; ++row) {
      double* to = out.data() + row * n;
      for (int64_t j = 0; j < n; ++j) to[j] = bias.data<double>()[j];
      for (int64_t q = 0; q < k; ++q) {
        const double factor = a.data<double>()[row * k + q];
        const double* from = b.data<double>() + (row / m * k + q) * n;
        for (int64_t j = 0; j < n; ++j) to[j] += factor * from[j];
      }
    }
    return out;
  }
};

// (batch, rows, columns) or its transpose in memory, rows kPad elements apart.
Tensor stored(const Tensor& matrix, bool transposed, DType dtype) {
  const int64_t batch = matrix.size(0), rows = matrix.size(1), columns = matrix.size(2);
  const int64_t lines = transposed ? columns : rows;
  const int64_t width = (transposed ? rows : columns) + kPad;
  const Tensor memory = empty({batch, lines, width}, {dtype, {}});
  const Strides strides{lines * width, transposed ? 1 : width, transposed ? width : 1};
  copy_into(memory.alias(matrix.shape(), strides, 0), to_dtype(matrix, dtype));
  return memory;
}

struct Outcome {
  Tensor c;    // (batch, m, n + kPad)
  Tensor pre;  // the same
};

struct Variant {
  DType dtype;
  bool transpose_a = false, transpose_b = false;
  Activation activation = Activation::none;
  bool accumulate = false;
};

Outcome run(const Problem& problem, const Variant& variant, int threads) {
  const auto [batch, m, n, k] = problem.shape;
  const DType dtype = variant.dtype;
  const Tensor a = stored(problem.a, variant.transpose_a, dtype);
  const Tensor b = stored(problem.b, variant.transpose_b, dtype);
  const Tensor bias = to_dtype(problem.bias, dtype);
  const Outcome out{
      full({batch, m, n + kPad}, kUntouched, {dtype, {}}),
      full({batch, m, n + kPad}, kUntouched, {dtype, {}})};
  GemmArgs args;
  args.dtype = dtype;
  args.batch = batch;
  args.m = m;
  args.n = n;
  args.k = k;
  args.a = {a.raw(), a.stride(1), a.stride(0), variant.transpose_a};
  args.b = {b.raw(), b.stride(1), b.stride(0), variant.transpose_b};
  args.c = out.c.raw();
  args.c_row_stride = n + kPad;
  args.c_batch_stride = m * (n + kPad);
  args.bias = bias.raw();
  args.activation = variant.activation;
  args.pre_activation = variant.activation != Activation::none ? out.pre.raw() : nullptr;
  args.accumulate = variant.accumulate;
  const size_t bytes = kernels::gemm_scratch_bytes(args, threads);
  const Tensor scratch = full({int64_t(bytes + kGuard)}, 0x5a, {DType::u8, {}});
  args.scratch = scratch.raw();
  ThreadPool pool(threads);
  CpuContext context{pool};
  kernels::gemm(context, args);
  for (size_t i = bytes; i < bytes + kGuard; ++i) EXPECT_EQ(scratch.data<uint8_t>()[i], 0x5a);
  return out;
}

Tensor columns_of(const Tensor& padded, int64_t first, int64_t count) {
  return padded.alias(
      {padded.size(0), padded.size(1), count}, padded.strides(), padded.offset() + first);
}

testing::Tolerance tolerance(DType dtype, int64_t k) {
  if (dtype == DType::bf16) return {1e-5 * std::sqrt(double(k + 1)), 1.0 / 256};  // one rounding
  return testing::tolerance_for(dtype, k);
}

std::string describe_case(const Case& c, const Variant& v) {
  return fmt::format(
      "{} ({}, {}, {}) x {} {}{} {}",
      kernels::name_of(kernels::simd_level()),
      c.m,
      c.n,
      c.k,
      c.batch,
      v.transpose_a ? 'T' : 'N',
      v.transpose_b ? 'T' : 'N',
      name_of(v.dtype));
}

TEST(Gemm, MatchesItsFormulaAtEveryLevel) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    for (const Case& c : kCases) {
      const Problem problem(c, dtype);
      const auto expected = problem.product();
      const std::vector<double> untouched(size_t(c.batch * c.m * kPad), kUntouched);
      for (const SimdLevel level : levels()) {
        const LevelScope scope(level);
        for (const bool transpose_a : {false, true}) {
          for (const bool transpose_b : {false, true}) {
            const Variant variant{dtype, transpose_a, transpose_b};
            const std::string what = describe_case(c, variant);
            const Outcome out = run(problem, variant, 2);
            EXPECT_TRUE(near(columns_of(out.c, 0, c.n), expected, tolerance(dtype, c.k), what));
            EXPECT_EQ(testing::values_of(columns_of(out.c, c.n, kPad)), untouched) << what;
          }
        }
      }
    }
  }
}

double apply(Activation activation, double y) {
  switch (activation) {
    case Activation::none:
      break;
    case Activation::gelu:
      return 0.5 * y * std::erfc(-y / std::sqrt(2.0));
    case Activation::silu:
      return y / (1 + std::exp(-y));
    case Activation::relu:
      return std::max(y, 0.0);
  }
  return y;
}

TEST(Gemm, EpilogueAtEveryLevel) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    // Dot products, one depth, several depths and split sums finish tiles in different places.
    for (const Case& c :
         {Case{1, 3, 9, 20}, {2, 20, 37, 30}, {1, 70, 150, 1100}, {1, 9, 40, 2100}}) {
      const Problem problem(c, dtype);
      const auto sums = problem.product();
      for (const SimdLevel level : levels()) {
        const LevelScope scope(level);
        for (const Activation activation :
             {Activation::none, Activation::gelu, Activation::silu, Activation::relu}) {
          for (const bool accumulate : {false, true}) {
            const bool transpose_a = c.k == 2100;  // else the sum is not split
            const Variant variant{dtype, transpose_a, true, activation, accumulate};
            const std::string what = describe_case(c, variant);
            auto expected = sums;
            for (double& value : expected) {
              value = apply(activation, value) + (accumulate ? kUntouched : 0);
            }
            const Outcome out = run(problem, variant, 2);
            const auto allowed = tolerance(dtype, c.k);
            EXPECT_TRUE(near(columns_of(out.c, 0, c.n), expected, allowed, what));
            if (activation == Activation::none) continue;
            EXPECT_TRUE(near(columns_of(out.pre, 0, c.n), sums, allowed, what + " before"));
          }
        }
      }
    }
  }
}

TEST(Gemm, SameBitsForAnyThreadCount) {
  for (const Case& c :
       {Case{1, 5, 300, 300}, {1, 300, 150, 600}, {1, 100, 130, 3000}, {9, 30, 40, 50}}) {
    const Problem problem(c, DType::f32);
    for (const bool transposed : {false, true}) {
      const Variant variant{DType::f32, transposed, transposed};
      const Outcome one = run(problem, variant, 1);
      for (const int threads : {2, 3, 5}) {
        EXPECT_TRUE(testing::bit_equal(run(problem, variant, threads).c, one.c));
      }
    }
  }
}

// One row of a block does not depend on the other rows of a.
TEST(Gemm, RowsOfABlockAreIndependent) {
  const Problem whole({1, 40, 50, 70}, DType::f32);
  Problem part = whole;
  part.shape.m = 11;
  part.a = whole.a.alias({1, 11, 70}, whole.a.strides(), 0);
  const Variant variant{DType::f32, false, true};
  EXPECT_TRUE(testing::bit_equal(
      run(part, variant, 2).c, run(whole, variant, 2).c.alias({1, 11, 53}, {2120, 53, 1}, 0)));
}

// However long the sum: it is cut for weight gradients only.
TEST(Gemm, RowsOfALongSumAreIndependent) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Problem whole({1, 300, 50, 2100}, dtype);
    Problem part = whole;
    part.shape.m = 40;
    part.a = whole.a.alias({1, 40, 2100}, whole.a.strides(), 0);
    for (const bool transpose_b : {false, true}) {
      const Variant variant{dtype, false, transpose_b};
      EXPECT_TRUE(testing::bit_equal(
          run(part, variant, 2).c, run(whole, variant, 2).c.alias({1, 40, 53}, {15900, 53, 1}, 0)));
    }
  }
}

// f32 stays f32: no reduced-precision products (a TF32 result is off by 3e-4).
TEST(Gemm, LargeProductKeepsF32Accuracy) {
  const Case c{1, 256, 256, 1024};
  const Problem problem(c, DType::f32);
  const auto expected = problem.product();
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  const Outcome out = run(problem, {DType::f32}, 2);
  EXPECT_TRUE(near(columns_of(out.c, 0, c.n), expected, {5e-6 * largest, 0}));
}

TEST(GemmPlan, CutsTheSumWhenBlocksAreFew) {
  const auto plan_of = [](int64_t m, int64_t n, int64_t k) {
    GemmArgs args;
    args.m = m;
    args.n = n;
    args.k = k;
    args.a.transposed = true;
    return kernels::gemm_plan(args, SimdLevel::avx512);
  };
  EXPECT_EQ(plan_of(2048, 512, 128).splits, 1);   // forward: many blocks
  EXPECT_GT(plan_of(128, 128, 32768).splits, 1);  // weight gradient: few blocks, long sum
  EXPECT_EQ(plan_of(128, 128, 512).splits, 1);    // too short to cut
  for (const int64_t k : {2047, 2048, 2049, 5000, 1 << 20}) {
    const auto plan = plan_of(128, 128, k);
    EXPECT_GE(plan.splits * plan.depths_per_split * plan.depth, k);
    EXPECT_LT((plan.splits - 1) * plan.depths_per_split * plan.depth, k);
  }
}

}  // namespace
}  // namespace sluice
