// See batches.h.
#include "models/batches.h"

#include <algorithm>

#include "engine/errors.h"
#include "engine/philox.h"

namespace sluice {
namespace {

// Below 2^32, where the random streams of layers begin.
constexpr uint64_t kSampleStream = 0x73616d70;  // "samp"

}  // namespace

Batch window_batch(std::span<const uint8_t> text, int64_t tokens, std::span<const int64_t> starts) {
  const auto rows = static_cast<int64_t>(starts.size());
  Batch batch;
  batch.tokens = empty({rows, tokens}, {.dtype = DType::i32});
  batch.targets = empty({rows, tokens}, {.dtype = DType::i32});
  batch.starts.assign(starts.begin(), starts.end());
  auto* token = batch.tokens.data<int32_t>();
  auto* target = batch.targets.data<int32_t>();
  for (const int64_t start : starts) {
    SLUICE_CHECK(
        start >= 0 && start < static_cast<int64_t>(text.size()) - tokens,
        ArgumentError,
        "window_batch: start must leave room for {} tokens and a target in {} bytes, got {}",
        tokens,
        text.size(),
        start);
    const uint8_t* byte = text.data() + start;
    for (int64_t t = 0; t < tokens; ++t) {
      *token++ = byte[t];
      *target++ = byte[t + 1];
    }
  }
  return batch;
}

Tensor target_mask(std::span<const uint8_t> mask, int64_t tokens, std::span<const int64_t> starts) {
  const Tensor out = empty({int64_t(starts.size()), tokens}, {.dtype = DType::u8});
  auto* row = out.data<uint8_t>();
  for (const int64_t start : starts) {
    const auto first = mask.begin() + start + 1;
    row = std::copy(first, first + tokens, row);
  }
  return out;
}

int64_t sampled_start(int64_t text_bytes, int64_t tokens, uint64_t seed, int64_t sample) {
  const int64_t windows = text_bytes - tokens;
  SLUICE_CHECK(
      windows > 0,
      ArgumentError,
      "sampled_start: the text must be longer than {} tokens, got {} bytes",
      tokens,
      text_bytes);
  const auto word = philox4x32({seed, kSampleStream}, static_cast<uint64_t>(sample));
  const uint64_t bits = (uint64_t{word[1]} << 32) | word[0];
  // The high half of bits * windows is uniform to one part in 2^64 / windows, without a division.
  return static_cast<int64_t>(
      (static_cast<unsigned __int128>(bits) * static_cast<uint64_t>(windows)) >> 64);
}

Batch sampled_batch(
    std::span<const uint8_t> text, const SampleOptions& options, int64_t first_sample) {
  std::vector<int64_t> starts;
  starts.reserve(static_cast<size_t>(options.batch));
  for (int64_t row = 0; row < options.batch; ++row) {
    starts.push_back(sampled_start(
        static_cast<int64_t>(text.size()), options.tokens, options.seed, first_sample + row));
  }
  return window_batch(text, options.tokens, starts);
}

int64_t consecutive_windows(int64_t text_bytes, int64_t tokens) {
  return text_bytes <= tokens ? 0 : (text_bytes - 1) / tokens;
}

}  // namespace sluice
