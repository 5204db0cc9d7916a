// A text as bytes, cut into what is trained on and a held-out tail.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sluice {

struct TextData {
  std::string path;
  std::vector<uint8_t> bytes;
  int64_t held_out_begin = 0;  ///< bytes before it are trained on, the others never

  std::span<const uint8_t> training() const {
    return std::span(bytes).first(static_cast<size_t>(held_out_begin));
  }
  std::span<const uint8_t> held_out() const {
    return std::span(bytes).subspan(static_cast<size_t>(held_out_begin));
  }
};

/// Reads a whole file; its last `held_out` part (a fraction in [0, 1)) is the held-out text.
/// Throws IoError with the path and the system's reason, ArgumentError on the fraction.
TextData read_text(const std::string& path, double held_out);

/// Throws ArgumentError unless both parts hold at least one window of `tokens` bytes and the byte
/// that follows it; the message says how long each part is and what would help.
void require_windows(const TextData& text, int64_t tokens);

/// One entry per byte of `text`: 1 on the value of each line that starts with one of `prefixes`
/// (its bytes after the prefix, without the line break), 0 elsewhere.
std::vector<uint8_t> field_value_mask(
    std::span<const uint8_t> text, std::span<const std::string> prefixes);

}  // namespace sluice
