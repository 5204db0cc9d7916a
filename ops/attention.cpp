#include "ops/attention.h"

#include "ops/softmax_attention.h"

namespace sluice::ops {

Tensor attention(
    const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  return softmax_attention("attention", q, k, v, options, 0, WantLse::no).out;
}

AttentionOutput attention_with_lse(
    const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  return softmax_attention("attention_with_lse", q, k, v, options, 0, WantLse::yes);
}

}  // namespace sluice::ops
