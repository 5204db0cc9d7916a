// Backward groups the positions by id, then each weight row gathers its own.
#include "kernels/embedding.h"

#include "kernels/simd/dispatch.h"
#include "kernels/simd/group_ids.h"
#include "kernels/simd/ids.h"
#include "kernels/simd/rows.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

template <class Id>
void copy_rows(CpuContext& context, const EmbeddingForward& args) {
  const Id* ids = static_cast<const Id*>(args.ids);
  const auto bytes = int64_t(size_of(args.dtype));
  const auto row_bytes = static_cast<size_t>(args.width * bytes);
  for_each_row_chunk(
      context.threads, args.count, args.width, [&](int64_t first, int64_t last, int64_t) {
        for (int64_t i = first; i < last; ++i) {
          char* to = static_cast<char*>(args.out) + i * args.width * bytes;
          const int64_t offset = int64_t(ids[i]) * args.weight_row_stride * bytes;
          if (ids[i] < 0)
            std::memset(to, 0, row_bytes);
          else
            std::memcpy(to, static_cast<const char*>(args.weight) + offset, row_bytes);
        }
      });
}

template <class T>
void sum_row(const EmbeddingBackward& args, const int64_t* first, const int64_t* last, T* out) {
  using V = Vec<Accumulator<T>>;
  constexpr int kVectors = 4;
  constexpr int64_t kWidth = kVectors * kLanesOf<T>;
  for (int64_t column = 0; column < args.width; column += kWidth) {
    const int64_t width = args.width - column < kWidth ? args.width - column : kWidth;
    V sum[kVectors] = {};
    for (const int64_t* position = first; position < last; ++position) {
      const T* from =
          static_cast<const T*>(args.grad_out) + *position * args.grad_out_row_stride + column;
      int v = 0;
      for_each_vector<T>(
          width, [&](int64_t i, int count) __attribute__((always_inline)) {
            sum[v++] += load_count(from + i, count);
          });
    }
    int v = 0;
    for_each_vector<T>(
        width, [&](int64_t i, int count) __attribute__((always_inline)) {
          store_count(out + column + i, sum[v++], count);
        });
  }
}

}  // namespace

void embedding_forward(CpuContext& context, const EmbeddingForward& args) {
  dispatch_ids(args.id_dtype, [&]<class Id>() {
    const Id* ids = static_cast<const Id*>(args.ids);
    *args.first_outside = scan_ids(ids, args.count, args.vocabulary, -1).first_outside;
    if (*args.first_outside < 0) copy_rows<Id>(context, args);
  });
}

void embedding_backward(CpuContext& context, const EmbeddingBackward& args) {
  auto* offsets = static_cast<int64_t*>(args.scratch);
  int64_t* positions = offsets + args.vocabulary + 1;
  dispatch_ids(args.id_dtype, [&]<class Id>() {
    group_ids(static_cast<const Id*>(args.ids), args.count, args.vocabulary, offsets, positions);
  });
  // Frequent ids make some rows long: many small chunks even that out. A row has one writer, so
  // the chunks do not touch the bits.
  const int64_t each = args.vocabulary / 256 + 1;
  const int64_t chunks = (args.vocabulary + each - 1) / each;
  dispatch_floating(args.dtype, [&]<class T>() {
    parallel_for(context.threads, chunks, [&](int64_t chunk) {
      const int64_t end = (chunk + 1) * each;
      const int64_t last = end < args.vocabulary ? end : args.vocabulary;
      for (int64_t r = chunk * each; r < last; ++r) {
        T* out = static_cast<T*>(args.grad_weight) + r * args.width;
        sum_row<T>(args, positions + offsets[r], positions + offsets[r + 1], out);
      }
    });
  });
}

}  // namespace sluice::kernels::SLUICE_ISA

#if defined(SLUICE_ISA_IS_BASELINE)
namespace sluice::kernels {

size_t embedding_backward_scratch_bytes(const EmbeddingBackward& args) {
  return size_t(args.vocabulary + 1 + args.count) * sizeof(int64_t);
}

}  // namespace sluice::kernels
#endif

SLUICE_DISPATCH(embedding_forward, EmbeddingForward)
SLUICE_DISPATCH(embedding_backward, EmbeddingBackward)
