// Copies run at memory speed when both sides are dense along the inner axis; the element type only
// matters by its size. A transposition would touch a new cache line with every element it reads: it
// goes through tiles that fit in L1.
#include "kernels/copy.h"

#include <algorithm>
#include <cstring>

namespace sluice::kernels {
namespace {

constexpr int64_t kTile = 32;

// The outer axis along which `from` is dense, where `to` is dense along the inner one; or -1.
int transposed_axis(const StridedLoop<2>& loop) {
  if (loop.inner_stride[0] != 1 || loop.inner_stride[1] == 1) return -1;
  for (int axis = 0; axis < loop.outer_rank; ++axis) {
    if (loop.outer_stride[1][size_t(axis)] == 1) return axis;
  }
  return -1;
}

// Copies the tile of `rows` x `columns`: from is dense along rows, to along columns.
template <class Word>
void copy_tile(
    Word* to, int64_t to_step, const Word* from, int64_t from_step, int64_t rows, int64_t columns) {
  Word tile[kTile][kTile];
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) tile[r][c] = from[c * from_step + r];
  }
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(to + r * to_step, tile[r], size_t(columns) * sizeof(Word));
  }
}

// Axis `axis` is cut into tiles; a chunk is one strip of tiles along the inner axis.
template <class Word>
void copy_transposed(CpuContext& context, const CopyArgs& args, int axis) {
  auto* to = static_cast<Word*>(args.to);
  const auto* from = static_cast<const Word*>(args.from);
  const StridedLoop<2>& loop = args.loop;
  const int64_t extent = loop.outer[size_t(axis)];
  const int64_t to_step = loop.outer_stride[0][size_t(axis)];
  const int64_t from_step = loop.inner_stride[1];
  const int64_t strips = (extent + kTile - 1) / kTile;
  int64_t below = 1;  // rows between neighbours along `axis`
  for (int a = axis + 1; a < loop.outer_rank; ++a) below *= loop.outer[size_t(a)];
  const int64_t total = loop.rows / extent * strips;
  const int64_t bundle = (kParallelElements + kTile * loop.inner - 1) / (kTile * loop.inner);
  parallel_for(context.threads, (total + bundle - 1) / bundle, [&](int64_t chunk) {
    const int64_t last = std::min(total, (chunk + 1) * bundle);
    for (int64_t strip = chunk * bundle; strip < last; ++strip) {
      const int64_t first = strip % strips * kTile;
      const int64_t other = strip / strips;  // index over the remaining outer axes
      const int64_t row = (other / below * extent + first) * below + other % below;
      const auto offset = loop.offsets(row);
      const int64_t rows = std::min(kTile, extent - first);
      for (int64_t c = 0; c < loop.inner; c += kTile) {
        copy_tile(
            to + offset[0] + c,
            to_step,
            from + offset[1] + c * from_step,
            from_step,
            rows,
            std::min(kTile, loop.inner - c));
      }
    }
  });
}

template <class Word>
void copy_words(CpuContext& context, const CopyArgs& args) {
  if (const int axis = transposed_axis(args.loop); axis >= 0) {
    return copy_transposed<Word>(context, args, axis);
  }
  auto* to = static_cast<Word*>(args.to);
  const auto* from = static_cast<const Word*>(args.from);
  const auto [to_step, from_step] = args.loop.inner_stride;
  for_each_run(context.threads, args.loop, [&](const auto& offset, int64_t count) {
    Word* out = to + offset[0];
    const Word* in = from + offset[1];
    if (to_step == 1 && from_step == 1) {
      std::memcpy(out, in, size_t(count) * sizeof(Word));
    } else {
      for (int64_t i = 0; i < count; ++i) out[i * to_step] = in[i * from_step];
    }
  });
}

}  // namespace

void copy(CpuContext& context, const CopyArgs& args) {
  switch (args.element_bytes) {
    case 1:
      return copy_words<uint8_t>(context, args);
    case 2:
      return copy_words<uint16_t>(context, args);
    case 4:
      return copy_words<uint32_t>(context, args);
    default:
      return copy_words<uint64_t>(context, args);
  }
}

}  // namespace sluice::kernels
