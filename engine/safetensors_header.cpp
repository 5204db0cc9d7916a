// Strict on the way in: whatever the format leaves open or another reader might take differently is
// refused, so a file means the same to every program that accepts it.

#include "engine/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "engine/errors.h"

namespace sluice {
namespace {

using nlohmann::json;

struct DTypeName {
  DType dtype;
  const char* name;
};
// In the order in which the reference stores them, widest first, so that each tensor is aligned.
constexpr DTypeName kDTypeNames[] = {
    {DType::i64, "I64"},
    {DType::f64, "F64"},
    {DType::f32, "F32"},
    {DType::i32, "I32"},
    {DType::bf16, "BF16"},
    {DType::u8, "U8"},
};

std::optional<DType> parse_dtype(const std::string& text) {
  for (const auto& [dtype, name] : kDTypeNames) {
    if (text == name) return dtype;
  }
  return std::nullopt;
}

// The JSON object of the header. The parser alone would keep the last of two equal names and would
// follow nesting of any depth.
json parse_json(const std::string& path, std::string_view text) {
  SLUICE_CHECK(!text.empty(), IoError, "{}: header must begin with '{{', got nothing", path);
  SLUICE_CHECK(
      text.starts_with('{'),
      IoError,
      "{}: header must begin with '{{', got byte {:#04x}",
      path,
      static_cast<unsigned char>(text.front()));
  // The parser takes a NUL for the end of its input.
  SLUICE_CHECK(
      text.find('\0') == std::string_view::npos, IoError, "{}: header must not contain NUL", path);
  std::vector<std::set<std::string>> names;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
      case json::parse_event_t::array_start:
        SLUICE_CHECK(
            depth <= 2, IoError, "{}: header must be nested at most 3 deep, got more", path);
        names.emplace_back();
        break;
      case json::parse_event_t::object_end:
      case json::parse_event_t::array_end:
        names.pop_back();
        break;
      case json::parse_event_t::key:
        SLUICE_CHECK(
            names.back().insert(parsed.get<std::string>()).second,
            IoError,
            "{}: names must be unique, got '{}' twice",
            path,
            parsed.get<std::string>());
        break;
      case json::parse_event_t::value:
        break;
    }
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::exception& error) {
    const auto* parse_error = dynamic_cast<const json::parse_error*>(&error);
    throw IoError(fmt::format(
        "{}: header must be JSON in valid UTF-8, got an error at its byte {}",
        path,
        parse_error != nullptr ? parse_error->byte : text.size()));
  }
}

std::map<std::string, std::string> read_metadata(const std::string& path, const json& header) {
  std::map<std::string, std::string> metadata;
  const auto found = header.find(kSafetensorsMetadata);
  if (found == header.end()) return metadata;
  SLUICE_CHECK(
      found->is_object(),
      IoError,
      "{}: __metadata__ must be an object, got {}",
      path,
      found->type_name());
  for (const auto& [key, value] : found->items()) {
    SLUICE_CHECK(
        value.is_string(),
        IoError,
        "{}: __metadata__ entry '{}' must be a string, got {}",
        path,
        key,
        value.type_name());
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

std::vector<uint64_t> read_integers(
    const std::string& path, const std::string& name, const char* field, const json& value) {
  SLUICE_CHECK(
      value.is_array(),
      IoError,
      "{}: {} of '{}' must be an array, got {}",
      path,
      field,
      name,
      value.type_name());
  std::vector<uint64_t> integers;
  for (const json& element : value) {
    SLUICE_CHECK(
        element.is_number_unsigned(),
        IoError,
        "{}: {} of '{}' must hold integers >= 0, got {}",
        path,
        field,
        name,
        element.dump());
    integers.push_back(element.get<uint64_t>());
  }
  return integers;
}

Shape read_shape(const std::string& path, const std::string& name, const json& value) {
  std::vector<int64_t> dims;
  for (const uint64_t extent : read_integers(path, name, "shape", value)) {
    SLUICE_CHECK(
        extent <= static_cast<uint64_t>(INT64_MAX),
        IoError,
        "{}: shape of '{}' must hold extents below 2^63, got {}",
        path,
        name,
        extent);
    dims.push_back(static_cast<int64_t>(extent));
  }
  try {
    return Shape(std::span<const int64_t>(dims));
  } catch (const ShapeError& error) {
    throw IoError(fmt::format("{}: shape of '{}': {}", path, name, error.what()));
  }
}

SafetensorsEntry read_entry(const std::string& path, const std::string& name, const json& info) {
  SLUICE_CHECK(
      info.is_object(),
      IoError,
      "{}: '{}' must be an object, got {}",
      path,
      name,
      info.type_name());
  for (const char* field : {"dtype", "shape", "data_offsets"}) {
    SLUICE_CHECK(info.contains(field), IoError, "{}: '{}' must have a {}", path, name, field);
  }
  for (const auto& [field, value] : info.items()) {
    SLUICE_CHECK(
        field == "dtype" || field == "shape" || field == "data_offsets",
        IoError,
        "{}: fields of '{}' must be dtype, shape and data_offsets, got '{}'",
        path,
        name,
        field);
  }
  SafetensorsEntry entry;
  entry.name = name;
  const json& dtype = info["dtype"];
  const std::string text = dtype.is_string() ? dtype.get<std::string>() : dtype.dump();
  const auto parsed = parse_dtype(text);
  SLUICE_CHECK(
      parsed.has_value(),
      IoError,
      "{}: dtype of '{}' must be F32, BF16, F64, I32, I64 or U8, got {}",
      path,
      name,
      text);
  entry.dtype = *parsed;
  entry.shape = read_shape(path, name, info["shape"]);
  const auto offsets = read_integers(path, name, "data_offsets", info["data_offsets"]);
  SLUICE_CHECK(
      offsets.size() == 2,
      IoError,
      "{}: data_offsets of '{}' must be 2 numbers, got {}",
      path,
      name,
      offsets.size());
  entry.begin = offsets[0];
  entry.end = offsets[1];
  uint64_t bytes = 0;
  const bool overflow = __builtin_mul_overflow(
      static_cast<uint64_t>(entry.shape.numel()), uint64_t{size_of(entry.dtype)}, &bytes);
  SLUICE_CHECK(
      !overflow && entry.begin <= entry.end && entry.end - entry.begin == bytes,
      IoError,
      "{}: data_offsets of '{}' must span the bytes of {} {}, got [{}, {}]",
      path,
      name,
      name_of(entry.dtype),
      to_string(entry.shape),
      entry.begin,
      entry.end);
  return entry;
}

// Each byte of the buffer belongs to exactly one tensor.
void check_tiling(
    const std::string& path, std::vector<SafetensorsEntry>& entries, uint64_t buffer_bytes) {
  std::sort(
      entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
        return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
      });
  uint64_t expected = 0;
  for (const SafetensorsEntry& entry : entries) {
    SLUICE_CHECK(
        entry.begin == expected,
        IoError,
        "{}: '{}' must begin at offset {} where the tensor before it ends, got {}",
        path,
        entry.name,
        expected,
        entry.begin);
    expected = entry.end;
  }
  SLUICE_CHECK(
      expected == buffer_bytes,
      IoError,
      "{}: the last tensor must end at {} where the file ends, got {}",
      path,
      buffer_bytes,
      expected);
}

std::string quoted(const std::string& text) {
  try {
    return json(text).dump();
  } catch (const json::exception&) {
    throw ArgumentError("safetensors: names and metadata must be valid UTF-8");
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(
    const std::string& path, std::string_view text, uint64_t buffer_bytes) {
  const json parsed = parse_json(path, text);
  SafetensorsHeader header;
  header.metadata = read_metadata(path, parsed);
  for (const auto& [name, info] : parsed.items()) {
    if (name != kSafetensorsMetadata) header.entries.push_back(read_entry(path, name, info));
  }
  check_tiling(path, header.entries, buffer_bytes);
  return header;
}

size_t safetensors_order(DType dtype) {
  size_t order = 0;
  while (kDTypeNames[order].dtype != dtype) ++order;
  return order;
}

std::string format_safetensors_header(const SafetensorsHeader& header) {
  std::string text = "{";
  if (!header.metadata.empty()) {
    text += fmt::format("\"{}\":{{", kSafetensorsMetadata);
    for (const auto& [key, value] : header.metadata) {
      if (text.back() != '{') text += ',';
      text += quoted(key) + ':' + quoted(value);
    }
    text += '}';
  }
  for (const SafetensorsEntry& entry : header.entries) {
    text += fmt::format(
        R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
        text.size() > 1 ? "," : "",
        quoted(entry.name),
        kDTypeNames[safetensors_order(entry.dtype)].name,
        fmt::join(entry.shape.dims(), ","),
        entry.begin,
        entry.end);
  }
  text += '}';
  text.resize(
      (text.size() + kSafetensorsLengthBytes - 1) / kSafetensorsLengthBytes *
          kSafetensorsLengthBytes,
      ' ');
  SLUICE_CHECK(
      text.size() <= kSafetensorsMaxHeaderBytes,
      ArgumentError,
      "safetensors: header must take at most {} bytes, got {}",
      kSafetensorsMaxHeaderBytes,
      text.size());
  return text;
}

}  // namespace sluice
