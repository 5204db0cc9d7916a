// The JSON header of a safetensors file as text and as a checked list of tensors. No files here, so
// every malformed header can be tested as a string.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/dtype.h"
#include "engine/shape.h"

namespace sluice {

inline constexpr uint64_t kSafetensorsLengthBytes = 8;  // of the number in front of the header
inline constexpr uint64_t kSafetensorsMaxHeaderBytes = 100'000'000;
inline constexpr const char* kSafetensorsMetadata = "__metadata__";

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  uint64_t begin = 0;  ///< byte offsets into the buffer behind the header
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< by rising offset; they tile the buffer
  std::map<std::string, std::string> metadata;
};

/// Parses `text` strictly and checks that the entries tile a buffer of `buffer_bytes` bytes.
/// Throws IoError beginning with `path`; load_safetensors lists what is refused.
SafetensorsHeader parse_safetensors_header(
    const std::string& path, std::string_view text, uint64_t buffer_bytes);

/// Where tensors of `dtype` stand in a file: lower numbers first, never a narrower type before a
/// wider one.
size_t safetensors_order(DType dtype);

/// The text of a header, padded with spaces to 8 bytes; entries are written in the order given.
/// Throws ArgumentError when a name or the metadata is not valid UTF-8 or the text is too long.
std::string format_safetensors_header(const SafetensorsHeader& header);

}  // namespace sluice
