// The one body of full and sliding-window attention.
#pragma once

#include "ops/attention.h"

namespace sluice::ops {

/// Attention with a window (0: none), in the name of `op`; lse is undefined unless wanted.
enum class WantLse { no, yes };
AttentionOutput softmax_attention(
    const char* op,
    const Tensor& q,
    const Tensor& k,
    const Tensor& v,
    const AttentionOptions& options,
    int64_t window,
    WantLse want_lse);

}  // namespace sluice::ops
