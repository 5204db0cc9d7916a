// See text_data.h.
#include "models/text_data.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

#include "engine/errors.h"

namespace sluice {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

TextData read_text(const std::string& path, double held_out) {
  SLUICE_CHECK(
      held_out >= 0 && held_out < 1,
      ArgumentError,
      "read_text: held_out must be in [0, 1), got {}",
      held_out);
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rb"));
  SLUICE_CHECK(file, IoError, "cannot open text {}: {}", path, std::strerror(errno));
  TextData text;
  text.path = path;
  constexpr size_t kPiece = size_t{1} << 20;
  for (;;) {
    const size_t before = text.bytes.size();
    text.bytes.resize(before + kPiece);
    const size_t got = std::fread(text.bytes.data() + before, 1, kPiece, file.get());
    text.bytes.resize(before + got);
    if (got < kPiece) break;
  }
  // A directory opens and then fails here.
  SLUICE_CHECK(
      std::ferror(file.get()) == 0, IoError, "cannot read text {}: {}", path, std::strerror(errno));
  const auto total = static_cast<int64_t>(text.bytes.size());
  text.held_out_begin = total - std::llround(static_cast<double>(total) * held_out);
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
