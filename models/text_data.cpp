// See text_data.h.
#include "models/text_data.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "engine/errors.h"
#include "engine/file.h"

namespace sluice {

TextData read_text(const std::string& path, double held_out) {
  SLUICE_CHECK(
      held_out >= 0 && held_out < 1,
      ArgumentError,
      "read_text: held_out must be in [0, 1), got {}",
      held_out);
  const MappedFile file(path);
  const auto* bytes = reinterpret_cast<const uint8_t*>(file.data());
  TextData text;
  text.path = path;
  // A copy: a text that somebody shortens in place during a long run does no harm.
  text.bytes.assign(bytes, bytes + file.bytes());
  const auto total = static_cast<double>(file.bytes());
  text.held_out_begin = std::llround(total) - std::llround(total * held_out);
  return text;
}

void require_windows(const TextData& text, int64_t tokens) {
  const auto total = static_cast<int64_t>(text.bytes.size());
  const int64_t training = text.held_out_begin;
  const int64_t held_out = total - training;
  SLUICE_CHECK(
      std::min(training, held_out) > tokens,
      ArgumentError,
      "text {} is too short: its {} bytes give {} to train on and {} held out, and each part needs "
      "more than train.tokens = {}; use a longer text or a smaller train.tokens",
      text.path,
      total,
      training,
      held_out,
      tokens);
}

std::vector<uint8_t> field_value_mask(
    std::span<const uint8_t> text, std::span<const std::string> prefixes) {
  std::vector<uint8_t> mask(text.size(), 0);
  const std::string_view bytes(reinterpret_cast<const char*>(text.data()), text.size());
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', begin), bytes.size());
    const std::string_view line = bytes.substr(begin, end - begin);
    for (const std::string& prefix : prefixes) {
      if (!line.starts_with(prefix)) continue;
      std::fill_n(
          mask.begin() + std::ptrdiff_t(begin + prefix.size()),
          line.size() - prefix.size(),
          uint8_t{1});
    }
    begin = end + 1;
  }
  return mask;
}

}  // namespace sluice
