#include "kernels/gemm_plan.h"

#include <algorithm>

namespace sluice::kernels {
namespace {

constexpr int64_t kBlockRows = 256;     // amortises packing a panel of b over so many rows
constexpr int64_t kBlockColumns = 128;  // a packed block of b (depth x 128) takes a quarter of L2
constexpr int64_t kBlocksWanted = 8;    // smaller blocks or split sums until there are so many
constexpr int64_t kDotRows = 8;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
constexpr size_t align(int64_t bytes) { return size_t(round_up(bytes, 64)); }

}  // namespace

GemmPlan gemm_plan(const GemmArgs& args, SimdLevel level) {
  GemmPlan plan{};
  plan.tile = gemm_tile(level, args.dtype);
  plan.dot = args.m < kDotRows && args.b.transposed && !args.a.transposed;
  const int64_t size = args.dtype == DType::f64 ? 8 : 4;
  plan.depth = 2048 / size;
  plan.block_columns = std::min(kBlockColumns, round_up(args.n, plan.tile.columns));
  plan.column_blocks = ceil_div(args.n, plan.block_columns);

  const int64_t depths = std::max<int64_t>(1, ceil_div(args.k, plan.depth));
  const auto blocks_of = [&](int64_t rows) {
    return args.batch * ceil_div(args.m, rows) * plan.column_blocks;
  };
  int64_t rows = kBlockRows;
  // A weight gradient has few blocks and a long sum: cut the sum, which costs one pass over c. Only
  // there: a row of activations must not change its bits with the number of rows around it.
  const int64_t blocks = blocks_of(rows);
  const bool split = args.a.transposed && depths >= 4 && blocks < kBlocksWanted;
  const int64_t splits = split ? std::min(depths, ceil_div(kBlocksWanted, blocks)) : 1;
  plan.depths_per_split = ceil_div(depths, splits);
  plan.splits = ceil_div(depths, plan.depths_per_split);
  while (!split && rows > kGemmStripRows && blocks_of(rows) < kBlocksWanted) rows /= 2;
  plan.block_rows = round_up(std::min(rows, args.m), plan.tile.rows);
  plan.row_blocks = ceil_div(args.m, plan.block_rows);
  plan.blocks = args.batch * plan.row_blocks * plan.column_blocks;

  plan.pack_b = args.b.transposed || args.dtype == DType::bf16 || plan.block_rows > kGemmDirectRows;
  const int64_t depth = std::min(plan.depth, args.k);
  const int64_t b_columns = plan.pack_b ? plan.block_columns : plan.tile.columns;
  const int64_t strip = std::min(round_up(kGemmStripRows, plan.tile.rows), plan.block_rows);
  const bool keeps_block = depths > 1 && plan.splits == 1;
  plan.block_bytes = align(plan.block_rows * plan.block_columns * size);
  plan.a_offset = align(depth * b_columns * size);
  plan.tiles_offset = plan.a_offset + align(depth * strip * size);
  plan.thread_bytes =
      plan.tiles_offset +
      (keeps_block ? plan.block_bytes : align(int64_t{plan.tile.rows} * plan.tile.columns * size));
  return plan;
}

size_t gemm_scratch_bytes(const GemmArgs& args, int threads) {
  if (args.m == 0 || args.n == 0 || args.batch == 0) return 0;
  const GemmPlan plan = gemm_plan(args, simd_level());
  if (plan.dot) return 0;
  const size_t partials =
      plan.splits > 1 ? size_t(plan.splits * plan.blocks) * plan.block_bytes : 0;
  return size_t(threads) * plan.thread_bytes + partials;
}

}  // namespace sluice::kernels
