// Element by element; rows are cut into pieces of a fixed size, a piece is a chunk for a thread.
#include "kernels/silu_mul.h"

#include "kernels/simd/dispatch.h"
#include "kernels/simd/math.h"
#include "kernels/simd/rows.h"

namespace sluice::kernels::SLUICE_ISA {

// Work is memory-bound once in L2 and below: this many elements keep a thread busy for some 10 us.
inline constexpr int64_t kPiece = 16384;

// body(row, first column, columns) for pieces that cover (rows, width); short rows are bundled.
template <class Body>
static inline void for_each_piece(ThreadPool& pool, int64_t rows, int64_t width, Body&& body) {
  if (rows == 0 || width == 0) return;
  const int64_t per_row = (width + kPiece - 1) / kPiece;
  const int64_t bundle = per_row > 1 ? 1 : (kPiece + width - 1) / width;
  const int64_t bundles = (rows + bundle - 1) / bundle;
  parallel_for(pool, bundles * per_row, [&](int64_t chunk) {
    const int64_t first = chunk % per_row * kPiece;
    const int64_t columns = width - first < kPiece ? width - first : kPiece;
    const int64_t begin = chunk / per_row * bundle;
    const int64_t end = begin + bundle < rows ? begin + bundle : rows;
    for (int64_t row = begin; row < end; ++row) body(row, first, columns);
  });
}

void silu_mul_forward(CpuContext& context, const SiluMulForward& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    for_each_piece(
        context.threads, args.rows, args.width, [&](int64_t row, int64_t first, int64_t columns) {
          const T* gate = static_cast<const T*>(args.gate) + row * args.gate_stride + first;
          const T* up = static_cast<const T*>(args.up) + row * args.up_stride + first;
          T* out = static_cast<T*>(args.out) + row * args.width + first;
          for_each_vector<T>(
              columns, [&](int64_t i, int count) __attribute__((always_inline)) {
                const auto g = load_count(gate + i, count);
                store_count(out + i, silu(g) * load_count(up + i, count), count);
              });
        });
  });
}

// d/dgate = up * silu'(gate), d/dup = silu(gate).
void silu_mul_backward(CpuContext& context, const SiluMulBackward& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    using V = Vec<Accumulator<T>>;
    for_each_piece(
        context.threads, args.rows, args.width, [&](int64_t row, int64_t first, int64_t columns) {
          const T* gate = static_cast<const T*>(args.gate) + row * args.gate_stride + first;
          const T* up = static_cast<const T*>(args.up) + row * args.up_stride + first;
          const int64_t at = row * args.width + first;
          const T* grad_out = static_cast<const T*>(args.grad_out) + at;
          T* grad_gate = args.grad_gate != nullptr ? static_cast<T*>(args.grad_gate) + at : nullptr;
          T* grad_up = args.grad_up != nullptr ? static_cast<T*>(args.grad_up) + at : nullptr;
          for_each_vector<T>(
              columns, [&](int64_t i, int count) __attribute__((always_inline)) {
                const V g = load_count(gate + i, count);
                const V grad = load_count(grad_out + i, count);
                if (grad_up != nullptr) store_count(grad_up + i, grad * silu(g), count);
                if (grad_gate != nullptr) {
                  const V slope = silu_slope(g);
                  store_count(grad_gate + i, grad * load_count(up + i, count) * slope, count);
                }
              });
        });
  });
}

}  // namespace sluice::kernels::SLUICE_ISA

SLUICE_DISPATCH(silu_mul_forward, SiluMulForward)
SLUICE_DISPATCH(silu_mul_backward, SiluMulBackward)
