// See text_data.h.
#include "models/text_data.h"

#include <algorithm>
#include <cmath>

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

std::vector<uint8_t> field_value_mask(std::span<const uint8_t> text, std::string_view prefix) {
  std::vector<uint8_t> mask(text.size(), 0);
  size_t line = 0;
  while (line < text.size()) {
    const auto end_of_line = std::find(text.begin() + std::ptrdiff_t(line), text.end(), '\n');
    const auto end = static_cast<size_t>(end_of_line - text.begin());
    const bool found =
        end - line >= prefix.size() &&
        std::equal(prefix.begin(), prefix.end(), text.begin() + std::ptrdiff_t(line));
    if (found) {
      std::fill(
          mask.begin() + std::ptrdiff_t(line + prefix.size()),
          mask.begin() + std::ptrdiff_t(end),
          uint8_t{1});
    }
    line = end + 1;
  }
  return mask;
}

}  // namespace sluice
