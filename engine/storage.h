// A block of memory shared by tensors that view it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/device.h"
#include "engine/memory.h"

namespace sluice {

/// Owns bytes on one device. Always held by shared_ptr; freed when the last view goes, even after
/// the allocator's other users are gone.
/// Thread-safety: the counter is atomic, the bytes are not guarded.
class Storage {
 public:
  /// `bytes` fresh bytes from `allocator`.
  Storage(size_t bytes, Device device, std::shared_ptr<Allocator> allocator);
  /// Borrows memory that `owner` keeps alive, for example a mapped file.
  Storage(void* data, size_t bytes, Device device, std::shared_ptr<void> owner);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

  /// Counts in-place writes; a saved tensor whose storage has moved on refuses to be used.
  uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

 private:
  std::byte* data_;
  size_t bytes_;
  Device device_;
  std::atomic<uint64_t> version_{0};
  std::shared_ptr<Allocator> allocator_;  // null when the memory is borrowed
  std::shared_ptr<void> owner_;
};

}  // namespace sluice
