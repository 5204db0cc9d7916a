// Windows of a text as (tokens, targets). Which windows a step sees is a pure function of the seed
// and the number of the sample, so runs that share a seed share their data order, a resumed run
// needs no state, and cutting a batch into accumulated parts changes nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/tensor.h"

namespace sluice {

struct Batch {
  Tensor tokens;                ///< (B, T) i32
  Tensor targets;               ///< (B, T) i32, the byte after each token
  std::vector<int64_t> starts;  ///< (B) offset of each window in the text
};

/// The windows of `tokens` bytes that begin at `starts`.
/// Throws ArgumentError when one of them, with the byte that follows it, leaves the text.
Batch window_batch(std::span<const uint8_t> text, int64_t tokens, std::span<const int64_t> starts);

/// Entries of `mask` (one per byte of the text) for the targets of those windows, (B, T) u8: they
/// belong to the queries that predict the marked bytes.
Tensor target_mask(std::span<const uint8_t> mask, int64_t tokens, std::span<const int64_t> starts);

/// Where sample number `sample` of the run begins, uniform over all windows of the text:
/// each is drawn on its own, so a window may come twice.
int64_t sampled_start(int64_t text_bytes, int64_t tokens, uint64_t seed, int64_t sample);

/// Samples first_sample .. first_sample + batch - 1. Throws ArgumentError when no window fits.
struct SampleOptions {
  int64_t batch = 1;
  int64_t tokens = 1;
  uint64_t seed = 0;
};
Batch sampled_batch(
    std::span<const uint8_t> text, const SampleOptions& options, int64_t first_sample);

/// Number of windows laid end to end: window w covers bytes [w * tokens, (w + 1) * tokens) and is
/// followed by at least one byte, so each byte but the first is predicted at most once.
int64_t consecutive_windows(int64_t text_bytes, int64_t tokens);

}  // namespace sluice
