// A piece of held-out text with each byte marked by the expert that predicted it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "models/meta_attention.h"

namespace sluice::tools {

/// A stretch of `text` inside one window of T tokens: the first whole package record, from
/// "Package: " to the empty line, that begins at least a quarter into its window; where there are
/// none, the start of the text.
struct Passage {
  int64_t window_begin = 0;  ///< offset in the text of the window that the model reads
  int64_t begin = 0;         ///< offsets in the text
  int64_t end = 0;
};
Passage find_passage(std::span<const uint8_t> text, int64_t tokens);

/// Runs the model in hard mode and prints the passage in lines of at most 96 bytes, each followed
/// by one line per routed layer: under each byte the expert of the query that predicted it, F full,
/// L linear, '.' window. Bytes that do not print show as '?'.
std::string mark_passage(
    const MetaAttentionLM& model,
    std::span<const uint8_t> text,
    int64_t tokens,
    const Passage& passage);

}  // namespace sluice::tools
