// Reading and writing named tensors in the safetensors format: 8 bytes of header length (little
// endian), a JSON header, then the tensors' bytes without gaps.
#pragma once

#include <map>
#include <span>
#include <string>

#include "engine/tensor.h"

namespace sluice {

struct SafetensorsFile {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// Maps the file and returns its tensors as views of the mapping, which lives as long as any of
/// them. Nothing is read until touched. Writing to such a tensor changes this process's copy of the
/// page, never the file. A tensor whose bytes are not aligned for its dtype is copied instead.
///
/// DTypes  F32, BF16, F64, I32, I64, U8
/// Throws  IoError naming the file, what was expected and what was found: a file that cannot be
///         read, a header length that is 0, above 100 MB or beyond the file, a header that is not
///         one JSON object in valid UTF-8, a name that occurs twice, an unknown dtype or field, a
///         rank above 8, data_offsets that do not fit dtype and shape, and tensors that overlap,
///         leave a gap or do not end where the file ends
/// Source  https://github.com/huggingface/safetensors, README "Format". Departs from it: fields
///         other than dtype, shape and data_offsets are refused, since their meaning is unknown
SafetensorsFile load_safetensors(const std::string& path);

/// Writes `tensors` (any strides) and `metadata` so that `path` holds the old file or the new one,
/// never a part (see AtomicFile). The bytes are those of the reference: tensors by falling element
/// size, then by name, the header padded with spaces to 8 bytes, so every tensor is aligned.
///
/// Throws  ArgumentError (undefined tensor, a name that occurs twice, is not UTF-8 or is
///         "__metadata__"), DeviceError (memory the host cannot read), IoError
void save_safetensors(
    const std::string& path,
    std::span<const NamedTensor> tensors,
    const std::map<std::string, std::string>& metadata = {});

}  // namespace sluice
