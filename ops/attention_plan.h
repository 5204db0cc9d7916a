// From tensors and AttentionOptions to what kernels take: sequences, segment bounds, live pairs,
// operand strides. Shared by full, window, linear and routed attention.
#pragma once

#include <memory>
#include <vector>

#include "engine/tensor.h"
#include "kernels/attention.h"
#include "ops/attention_options.h"

namespace sluice::ops {

/// A checked problem and the memory that it points into. Held by shared_ptr: not copyable, because
/// `problem` points at its own vectors.
struct AttentionPlan {
  kernels::AttentionProblem problem;
  std::vector<kernels::AttentionSequence> sequences;
  std::vector<int32_t> segment_begin, segment_end;
  std::vector<uint8_t> live;
  std::vector<uint8_t> keep;
  std::vector<int32_t> positions, offsets;  ///< of the query list
  int64_t batch = 0, query_rows = 0, key_rows = 0;
  bool covers_queries = true;  ///< a kernel writes every row of `out`
  bool covers_keys = true;     ///< a kernel writes every row of the gradients of k and v

  AttentionPlan() = default;
  AttentionPlan(const AttentionPlan&) = delete;
  AttentionPlan& operator=(const AttentionPlan&) = delete;
};

/// Checks everything but head_gate and builds the plan. `window` is 0 for none.
/// Throws ShapeError (ranks, extents, H not a multiple of Hkv, head size outside 1..256),
/// DTypeError, DeviceError, ArgumentError (lengths, offsets or lists out of order or range), all
/// naming `op`.
std::shared_ptr<const AttentionPlan> plan_attention(
    const char* op,
    const Tensor& q,
    const Tensor& k,
    const Tensor& v,
    const AttentionOptions& options,
    int64_t window = 0);

/// The dtype of sums and of what they leave per row: f64 for f64, else f32.
inline DType sum_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

/// Workspace for one kernel call.
inline Tensor new_scratch(size_t bytes, Device device) {
  return empty({int64_t(bytes)}, {DType::u8, device});
}

/// Data and strides of a (B, H, T, D) tensor with dense rows, or of a dense (B, H, T) one.
kernels::HeadRows head_rows(const Tensor& tensor);

}  // namespace sluice::ops
