// Memory for tensors: an allocator interface and the caching CPU allocator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace sluice {

struct MemoryStats {
  size_t bytes_in_use = 0;  ///< handed out now, in size classes (below 25 % or 64 bytes more)
  size_t peak_bytes_in_use = 0;
  size_t bytes_reserved = 0;  ///< obtained from the system: in use, cached, or not yet handed out
  uint64_t allocations = 0;   ///< calls so far
  uint64_t cache_hits = 0;    ///< of those, served with a block that was used before or left over
};

/// Source of aligned memory. Thread-safe, and usable in the child of a fork.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// At least `bytes` bytes, 64-byte aligned; never null (0 bytes give a valid pointer).
  /// Throws ArgumentError with needed and available bytes when the system has not that much.
  virtual void* allocate(size_t bytes) = 0;
  /// Takes back what `allocate(bytes)` returned.
  virtual void deallocate(void* pointer, size_t bytes) noexcept = 0;
  virtual MemoryStats stats() const = 0;
  /// Starts a new peak from the bytes in use now.
  virtual void reset_peak() = 0;
  /// Gives large cached blocks back to the system; returns how many bytes. Not for the middle of
  /// training: fresh pages cost more than the kernels that fill them.
  virtual size_t trim() = 0;
};

/// The process-wide caching CPU allocator. Under AddressSanitizer it reports what it reports for
/// the heap: use beyond the bytes asked for (there are gaps between blocks) and after deallocation.
const std::shared_ptr<Allocator>& cpu_allocator();

/// When on, fresh CPU memory is filled with 0xFF bytes (a NaN in every float type, -1 in every
/// signed integer), so an output that a kernel forgot to write is seen. On by default in debug
/// builds and with SLUICE_POISON=1 in the environment; SLUICE_POISON=0 turns it off.
void set_memory_poison(bool on);
bool memory_poison();

}  // namespace sluice
