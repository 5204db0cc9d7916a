// The block sizes of the caching allocator: multiples of 64 bytes up to 512, then four per power of
// two, so that less than a fifth of a block is unused, or 63 bytes of one below 320.
#pragma once

#include <bit>
#include <cstddef>

namespace sluice {

inline constexpr size_t kBlockAlignment = 64;
inline constexpr int kSizeClasses = 224;  // up to 2^62 bytes

/// The smallest block size that holds `bytes` <= 2^62.
constexpr size_t size_class_above(size_t bytes) {
  if (bytes <= kBlockAlignment) return kBlockAlignment;
  const size_t quarter = std::bit_floor(bytes - 1) / 4;
  const size_t step = quarter > kBlockAlignment ? quarter : kBlockAlignment;
  return (bytes + step - 1) / step * step;
}

/// The largest block size that fits into `bytes` >= 64.
constexpr size_t size_class_below(size_t bytes) {
  const size_t quarter = std::bit_floor(bytes) / 4;
  const size_t step = quarter > kBlockAlignment ? quarter : kBlockAlignment;
  return bytes / step * step;
}

/// Numbers the block sizes 0, 1, 2, ... without gaps.
constexpr int size_class_index(size_t block_bytes) {
  if (block_bytes <= 512) return static_cast<int>(block_bytes / kBlockAlignment) - 1;
  const int exponent = std::bit_width(block_bytes - 1) - 1;  // 2^exponent < block_bytes
  const size_t quarters = (block_bytes - (size_t{1} << exponent)) >> (exponent - 2);
  return 8 + (exponent - 9) * 4 + static_cast<int>(quarters) - 1;
}

}  // namespace sluice
