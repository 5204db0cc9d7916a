// Blocked matrix product. A chunk owns one block of c over one range of k: it packs panels of b
// (depth x tile columns) once, then runs strips of a against them, so a panel stays in L1 while the
// strip streams past and the strip stays in L2 for the next panel.
#include "kernels/gemm.h"

#include "kernels/gemm_dot.h"
#include "kernels/gemm_pack.h"
#include "kernels/gemm_plan.h"
#include "kernels/gemm_tile.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

#if defined(__AVX512F__)
constexpr SimdLevel kLevel = SimdLevel::avx512;
#elif defined(__AVX2__)
constexpr SimdLevel kLevel = SimdLevel::avx2;
#else
constexpr SimdLevel kLevel = SimdLevel::baseline;
#endif

template <class T>
class Gemm {
  using S = Accumulator<T>;
  static constexpr GemmTile kTile = gemm_tile(kLevel, dtype_of<T>());
  static constexpr int kRows = kTile.rows;
  static constexpr int kColumns = kTile.columns;
  static constexpr int kVectors = kColumns / Vec<S>::kLanes;
  static constexpr int64_t kStripRows = (kGemmStripRows + kRows - 1) / kRows * kRows;
  static constexpr int64_t kTileSize = kRows * kColumns;

 public:
  Gemm(const GemmArgs& args, const GemmPlan& plan, int threads)
      : args_(args),
        plan_(plan),
        scratch_(static_cast<char*>(args.scratch)),
        partials_(scratch_ + int64_t{threads} * int64_t(plan.thread_bytes)) {}

  /// Sums one block over one range of k; finishes it unless other ranges are to be added.
  void run(int64_t chunk, int thread) const {
    const int64_t split = chunk % plan_.splits;
    const Block block = locate(chunk / plan_.splits);
    char* mine = scratch_ + int64_t{thread} * int64_t(plan_.thread_bytes);
    S* b_panels = reinterpret_cast<S*>(mine);
    S* a_strip = reinterpret_cast<S*>(mine + plan_.a_offset);
    S* tiles = plan_.splits > 1 ? partial(block.index, split)
                                : reinterpret_cast<S*>(mine + plan_.tiles_offset);

    const int64_t first = split * plan_.depths_per_split * plan_.depth;
    const int64_t last = smaller(args_.k, first + plan_.depths_per_split * plan_.depth);
    // A block summed at one go needs no memory but that of the tile in flight.
    const bool one_tile = plan_.splits == 1 && args_.k <= plan_.depth;
    int64_t k = first;
    do {
      const int64_t depth = smaller(plan_.depth, last - k);
      const bool finish = plan_.splits == 1 && k + depth >= last;
      const Panels panels = panels_of_b(block, k, depth, b_panels);
      for (int64_t row = 0; row < block.rows; row += kStripRows) {
        const int64_t rows = smaller(kStripRows, block.rows - row);
        const Strip strip = strip_of_a(block, row, rows, k, depth, a_strip);
        for (int64_t column = 0; column < block.columns; column += kColumns) {
          const bool ragged = column + kColumns > block.columns;
          const S* b = ragged ? panels.last : panels.first + column * panels.column_step;
          const int64_t b_stride = ragged ? kColumns : panels.stride;
          for (int64_t r = 0; r < rows; r += kRows) {
            S* tile = one_tile ? tiles : tiles + tile_offset(row + r, column);
            multiply(depth, strip, r, rows, b, b_stride, tile, k > first);
            if (!finish) continue;
            finish_tile<kColumns, T>(
                args_,
                tile,
                block.batch,
                block.row + row + r,
                block.column + column,
                smaller(kRows, rows - r),
                smaller(kColumns, block.columns - column));
          }
        }
      }
      k += depth;
    } while (k < last);
  }

  /// Adds the partial sums of one block in the order of their ranges and finishes it.
  void combine(int64_t index) const {
    const Block block = locate(index);
    for (int64_t row = 0; row < block.rows; row += kRows) {
      for (int64_t column = 0; column < block.columns; column += kColumns) {
        S* total = partial(index, 0) + tile_offset(row, column);
        for (int64_t split = 1; split < plan_.splits; ++split) {
          const S* more = partial(index, split) + tile_offset(row, column);
          for (int64_t i = 0; i < kTileSize; ++i) total[i] += more[i];
        }
        finish_tile<kColumns, T>(
            args_,
            total,
            block.batch,
            block.row + row,
            block.column + column,
            smaller(kRows, block.rows - row),
            smaller(kColumns, block.columns - column));
      }
    }
  }

 private:
  struct Block {
    int64_t index, batch, row, column, rows, columns;
  };

  // Panels of b: the first at `first`, the next `column_step` elements per column further, rows of
  // k `stride` apart; a last panel with fewer columns than a tile is always a packed copy.
  struct Panels {
    const S* first;
    int64_t column_step;
    int64_t stride;
    const S* last;
  };

  // Tiles of a: whole tiles `step` elements per row apart, the ragged one in `last`.
  struct Strip {
    const S* first;
    int64_t step;
    int64_t stride;
    const S* last;
    bool packed;  // (depth, rows) order
  };

  Block locate(int64_t index) const {
    const int64_t column = index % plan_.column_blocks * plan_.block_columns;
    const int64_t row = index / plan_.column_blocks % plan_.row_blocks * plan_.block_rows;
    return {
        index,
        index / plan_.column_blocks / plan_.row_blocks,
        row,
        column,
        smaller(plan_.block_rows, args_.m - row),
        smaller(plan_.block_columns, args_.n - column)};
  }

  S* partial(int64_t index, int64_t split) const {
    return reinterpret_cast<S*>(
        partials_ + (index * plan_.splits + split) * int64_t(plan_.block_bytes));
  }

  // Tiles of a block lie one after another, a row of tiles at a time.
  int64_t tile_offset(int64_t row, int64_t column) const {
    return row * plan_.block_columns + column * kRows;
  }

  Panels panels_of_b(const Block& block, int64_t k, int64_t depth, S* to) const {
    const GemmMatrix& b = args_.b;
    const T* data = static_cast<const T*>(b.data) + block.batch * b.batch_stride;
    const int64_t whole = block.columns / kColumns * kColumns;
    if (b.transposed) {
      data += block.column * b.row_stride + k;
      pack_columns_of_b<kColumns>(data, b.row_stride, depth, block.columns, to);
      return {to, depth, kColumns, to + whole * depth};
    }
    data += k * b.row_stride + block.column;
    if constexpr (std::is_same_v<T, S>) {
      if (!plan_.pack_b) {
        pack_rows_of_b<kColumns>(data + whole, b.row_stride, depth, block.columns - whole, to);
        return {data, 1, b.row_stride, to};
      }
    }
    pack_rows_of_b<kColumns>(data, b.row_stride, depth, block.columns, to);
    return {to, depth, kColumns, to + whole * depth};
  }

  Strip strip_of_a(
      const Block& block, int64_t row, int64_t rows, int64_t k, int64_t depth, S* to) const {
    const GemmMatrix& a = args_.a;
    const T* data = static_cast<const T*>(a.data) + block.batch * a.batch_stride;
    const int64_t whole = rows / kRows * kRows;
    S* last = to + whole * depth;
    if (a.transposed) {
      data += k * a.row_stride + block.row + row;
      pack_transposed_a<kRows>(data, a.row_stride, rows, depth, to);
      return {to, depth, 0, last, true};
    }
    data += (block.row + row) * a.row_stride + k;
    if (whole < rows) {
      pack_rows_of_a<kRows>(data + whole * a.row_stride, a.row_stride, rows - whole, depth, last);
    }
    if constexpr (std::is_same_v<T, S>) {
      return {data, a.row_stride, a.row_stride, last, false};
    } else {
      for (int64_t r = 0; r < whole; r += kRows) {
        pack_rows_of_a<kRows>(data + r * a.row_stride, a.row_stride, kRows, depth, to + r * depth);
      }
      return {to, depth, depth, last, false};
    }
  }

  SLUICE_INLINE void multiply(
      int64_t depth,
      const Strip& strip,
      int64_t r,
      int64_t rows,
      const S* b,
      int64_t b_stride,
      S* tile,
      bool resume) const {
    const bool ragged = r + kRows > rows;
    const S* a = ragged ? strip.last : strip.first + r * strip.step;
    if (strip.packed) {
      multiply_tile<kRows, kVectors, true>(depth, a, 0, b, b_stride, tile, resume);
    } else {
      const int64_t a_stride = ragged ? depth : strip.stride;
      multiply_tile<kRows, kVectors, false>(depth, a, a_stride, b, b_stride, tile, resume);
    }
  }

  const GemmArgs& args_;
  const GemmPlan& plan_;
  char* scratch_;
  char* partials_;
};

// Products that take about as long as waking the pool stay on the calling thread.
template <class F>
void for_each_chunk(CpuContext& context, const GemmArgs& args, int64_t chunks, F&& body) {
  constexpr double kWorthwhile = 5e5;  // multiplications: a few us
  if (double(args.batch) * double(args.m) * double(args.n) * double(args.k) < kWorthwhile) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) body(chunk, 0);
  } else {
    parallel_for(context.threads, chunks, body);
  }
}

template <class T>
void multiply_by_dots(CpuContext& context, const GemmArgs& args) {
  constexpr int64_t kElements = 65536;  // of b per chunk: some 10 us
  const int64_t columns = (kElements / (args.k + 1) + kDotColumns) / kDotColumns * kDotColumns;
  const int64_t chunks = (args.n + columns - 1) / columns;
  for_each_chunk(context, args, args.batch * chunks, [&](int64_t chunk, int) {
    const int64_t first = chunk % chunks * columns;
    dot_columns<T>(args, chunk / chunks, first, smaller(args.n, first + columns));
  });
}

template <class T>
void multiply_by_blocks(CpuContext& context, const GemmArgs& args, const GemmPlan& plan) {
  const Gemm<T> product(args, plan, context.threads.size());
  for_each_chunk(context, args, plan.blocks * plan.splits, [&](int64_t chunk, int thread) {
    product.run(chunk, thread);
  });
  if (plan.splits == 1) return;
  for_each_chunk(context, args, plan.blocks, [&](int64_t block, int) { product.combine(block); });
}

}  // namespace

void gemm(CpuContext& context, const GemmArgs& args) {
  if (args.batch == 0 || args.m == 0 || args.n == 0) return;
  const GemmPlan plan = gemm_plan(args, kLevel);
  dispatch_floating(args.dtype, [&]<class T>() {
    if (plan.dot)
      multiply_by_dots<T>(context, args);
    else
      multiply_by_blocks<T>(context, args, plan);
  });
}

}  // namespace sluice::kernels::SLUICE_ISA

SLUICE_DISPATCH(gemm, GemmArgs)
