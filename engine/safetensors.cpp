// Views of a mapped file on the way in, one streamed atomic file on the way out.

#include "engine/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <vector>

#include "engine/errors.h"
#include "engine/file.h"
#include "engine/safetensors_header.h"

namespace sluice {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are stored little endian");

int64_t bytes_of(const Tensor& tensor) { return tensor.numel() * int64_t(size_of(tensor.dtype())); }

Tensor view_of(
    const std::shared_ptr<MappedFile>& file, uint64_t offset, const SafetensorsEntry& entry) {
  std::byte* const data = file->data() + offset + entry.begin;
  const auto bytes = static_cast<size_t>(entry.end - entry.begin);
  if (reinterpret_cast<uintptr_t>(data) % size_of(entry.dtype) != 0) {
    Tensor copy = empty(entry.shape, {entry.dtype, {}});
    if (bytes > 0) std::memcpy(copy.raw(), data, bytes);
    return copy;
  }
  auto storage = std::make_shared<Storage>(data, bytes, Device{}, file);
  return Tensor(std::move(storage), entry.dtype, entry.shape, contiguous_strides(entry.shape), 0);
}

void check_entry(const NamedTensor& entry) {
  SLUICE_CHECK(
      entry.tensor.defined(),
      ArgumentError,
      "save_safetensors: '{}' must be defined, got an undefined tensor",
      entry.name);
  SLUICE_CHECK(
      entry.tensor.device().type != DeviceType::cuda,
      DeviceError,
      "save_safetensors: '{}' must be in host memory, got {}",
      entry.name,
      describe(entry.tensor));
  SLUICE_CHECK(
      entry.name != kSafetensorsMetadata,
      ArgumentError,
      "save_safetensors: names must not be the reserved {}",
      kSafetensorsMetadata);
}

std::vector<const NamedTensor*> stored_order(std::span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> order;
  std::set<std::string> names;
  for (const NamedTensor& entry : tensors) {
    check_entry(entry);
    SLUICE_CHECK(
        names.insert(entry.name).second,
        ArgumentError,
        "save_safetensors: names must be unique, got '{}' twice",
        entry.name);
    order.push_back(&entry);
  }
  std::sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    const size_t a_order = safetensors_order(a->tensor.dtype());
    const size_t b_order = safetensors_order(b->tensor.dtype());
    return a_order != b_order ? a_order < b_order : a->name < b->name;
  });
  return order;
}

}  // namespace

SafetensorsFile load_safetensors(const std::string& path) {
  const auto file = std::make_shared<MappedFile>(path);
  SLUICE_CHECK(
      file->bytes() >= kSafetensorsLengthBytes,
      IoError,
      "{}: must hold the 8-byte length of its header, got {} bytes",
      path,
      file->bytes());
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file->data(), kSafetensorsLengthBytes);
  const uint64_t available = file->bytes() - kSafetensorsLengthBytes;
  SLUICE_CHECK(
      header_bytes > 0 && header_bytes <= kSafetensorsMaxHeaderBytes,
      IoError,
      "{}: header length must be in [1, {}], got {}",
      path,
      kSafetensorsMaxHeaderBytes,
      header_bytes);
  SLUICE_CHECK(
      header_bytes <= available,
      IoError,
      "{}: header must be {} bytes long, got {} bytes before the file ends",
      path,
      header_bytes,
      available);
  SafetensorsHeader header = parse_safetensors_header(
      path, file->text().substr(kSafetensorsLengthBytes, header_bytes), available - header_bytes);
  SafetensorsFile result;
  result.metadata = std::move(header.metadata);
  for (const SafetensorsEntry& entry : header.entries) {
    result.tensors.emplace(
        entry.name, view_of(file, kSafetensorsLengthBytes + header_bytes, entry));
  }
  return result;
}

void save_safetensors(
    const std::string& path,
    std::span<const NamedTensor> tensors,
    const std::map<std::string, std::string>& metadata) {
  const auto order = stored_order(tensors);
  SafetensorsHeader header;
  header.metadata = metadata;
  uint64_t begin = 0;
  for (const NamedTensor* entry : order) {
    const uint64_t end = begin + static_cast<uint64_t>(bytes_of(entry->tensor));
    header.entries.push_back(
        {entry->name, entry->tensor.dtype(), entry->tensor.shape(), begin, end});
    begin = end;
  }
  const std::string text = format_safetensors_header(header);
  const uint64_t header_bytes = text.size();
  AtomicFile file(path);
  file.write(&header_bytes, kSafetensorsLengthBytes);
  file.write(text);
  for (const NamedTensor* entry : order) {
    const Tensor dense = to_contiguous(entry->tensor);
    file.write(dense.raw(), static_cast<size_t>(bytes_of(dense)));
  }
  file.commit();
}

}  // namespace sluice
