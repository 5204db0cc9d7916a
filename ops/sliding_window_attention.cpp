#include "ops/sliding_window_attention.h"

#include "engine/errors.h"
#include "ops/softmax_attention.h"

namespace sluice::ops {

Tensor sliding_window_attention(
    const Tensor& q, const Tensor& k, const Tensor& v, const SlidingWindow& options) {
  SLUICE_CHECK(
      options.window > 0,
      ArgumentError,
      "sliding_window_attention: window must be > 0, got {}",
      options.window);
  return softmax_attention(
             "sliding_window_attention", q, k, v, options, options.window, WantLse::no)
      .out;
}

}  // namespace sluice::ops
