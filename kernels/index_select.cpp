#include "kernels/index_select.h"

#include "kernels/simd/dispatch.h"
#include "kernels/simd/group_ids.h"
#include "kernels/simd/ids.h"
#include "kernels/simd/row_bundles.h"
#include "kernels/simd/rows.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

template <class Id>
void copy_rows(CpuContext& context, const IndexSelect& args) {
  const Id* ids = static_cast<const Id*>(args.ids);
  const int64_t row_bytes = args.inner * args.element_bytes;
  for_each_row_bundle(
      context.threads, args.outer * args.count, args.inner, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; ++row) {
          const int64_t id = ids[row % args.count];
          char* to = static_cast<char*>(args.out) + row * row_bytes;
          if (id < 0) {
            std::memset(to, 0, size_t(row_bytes));
            continue;
          }
          const int64_t from = (row / args.count * args.extent + id) * row_bytes;
          std::memcpy(to, static_cast<const char*>(args.x) + from, size_t(row_bytes));
        }
      });
}

// `out` = the sum of the rows of `grad` at [first, last).
template <class T>
void sum_row(const T* grad, int64_t inner, const int64_t* first, const int64_t* last, T* out) {
  for_each_vector<T>(
      inner, [&](int64_t i, int count) __attribute__((always_inline)) {
        auto sum = Vec<Accumulator<T>>::zero();
        for (const int64_t* position = first; position < last; ++position) {
          sum += load_count(grad + *position * inner + i, count);
        }
        store_count(out + i, sum, count);
      });
}

}  // namespace

void index_select(CpuContext& context, const IndexSelect& args) {
  dispatch_ids(args.id_dtype, [&]<class Id>() {
    const Id* ids = static_cast<const Id*>(args.ids);
    *args.first_outside = scan_ids(ids, args.count, args.extent, -1).first_outside;
    if (*args.first_outside < 0) copy_rows<Id>(context, args);
  });
}

void index_select_gradient(CpuContext& context, const IndexSelectGradient& args) {
  int64_t* offsets = args.scratch;
  int64_t* positions = offsets + args.extent + 1;
  dispatch_ids(args.id_dtype, [&]<class Id>() {
    group_ids(static_cast<const Id*>(args.ids), args.count, args.extent, offsets, positions);
  });
  dispatch_floating(args.dtype, [&]<class T>() {
    for_each_row_bundle(
        context.threads, args.outer * args.extent, args.inner, [&](int64_t first, int64_t last) {
          for (int64_t row = first; row < last; ++row) {
            const int64_t r = row % args.extent;
            const int64_t o = row / args.extent;
            sum_row<T>(
                static_cast<const T*>(args.grad) + o * args.count * args.inner,
                args.inner,
                positions + offsets[r],
                positions + offsets[r + 1],
                static_cast<T*>(args.grad_x) + row * args.inner);
          }
        });
  });
}

}  // namespace sluice::kernels::SLUICE_ISA

SLUICE_DISPATCH(index_select, IndexSelect)
SLUICE_DISPATCH(index_select_gradient, IndexSelectGradient)
