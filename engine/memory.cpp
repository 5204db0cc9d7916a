#include "engine/memory.h"

#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include <sys/mman.h>

#include "engine/errors.h"

namespace sluice {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kArenaBytes = size_t{32} << 20;
// Above this a request gets its own mapping; below, arenas are carved into classes.
constexpr size_t kLargeBytes = size_t{8} << 20;

bool poison_default() {
#ifdef NDEBUG
  const char* value = std::getenv("SLUICE_POISON");
  return value != nullptr && std::strcmp(value, "1") == 0;
#else
  return true;
#endif
}

std::atomic<bool> poison{poison_default()};

size_t round_up(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

// Four classes per power of two: at most a quarter of a block is wasted.
size_t class_bytes(size_t bytes) {
  if (bytes <= kAlignment) return kAlignment;
  const size_t step = std::max(kAlignment, std::bit_floor(bytes - 1) / 4);
  return round_up(bytes, step);
}

}  // namespace

void set_memory_poison(bool on) { poison.store(on); }
bool memory_poison() { return poison.load(); }

namespace {

// Free blocks are kept by size class and reused first in, last out. Memory is taken from the system
// in 2 MiB-aligned arenas that ask for huge pages: a fresh 4 KiB page costs 1.5 to 11 us on the
// machines this was measured on, and nothing is given back before the process ends.
class CachingCpuAllocator final : public Allocator {
 public:
  void* allocate(size_t bytes) override {
    SLUICE_CHECK(
        bytes < (size_t{1} << 62),
        ArgumentError,
        "allocate: bytes must be below 2^62, got {}",
        bytes);
    const size_t rounded = class_bytes(bytes);
    void* block = nullptr;
    {
      const std::lock_guard lock(mutex_);
      ++stats_.allocations;
      auto& free_blocks = free_[rounded];
      if (!free_blocks.empty()) {
        block = free_blocks.back();
        free_blocks.pop_back();
        ++stats_.cache_hits;
      } else {
        block = rounded > kLargeBytes ? map(rounded) : carve(rounded);
      }
      stats_.bytes_in_use += rounded;
      stats_.peak_bytes_in_use = std::max(stats_.peak_bytes_in_use, stats_.bytes_in_use);
    }
    if (memory_poison()) std::memset(block, 0xFF, rounded);
    return block;
  }

  void deallocate(void* pointer, size_t bytes) noexcept override {
    const size_t rounded = class_bytes(bytes);
    const std::lock_guard lock(mutex_);
    free_[rounded].push_back(pointer);
    stats_.bytes_in_use -= rounded;
  }

  MemoryStats stats() const override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

  void reset_peak() override {
    const std::lock_guard lock(mutex_);
    stats_.peak_bytes_in_use = stats_.bytes_in_use;
  }

 private:
  void* map(size_t bytes) {
    const size_t length = round_up(bytes, kHugePage) + kHugePage;
    void* raw =
        mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SLUICE_CHECK(
        raw != MAP_FAILED,
        ArgumentError,
        "allocate: needs {} bytes, the system refused ({} bytes reserved so far)",
        bytes,
        stats_.bytes_reserved);
    auto* aligned = reinterpret_cast<std::byte*>(
        round_up(reinterpret_cast<uintptr_t>(raw), kHugePage));
    madvise(aligned, length - kHugePage, MADV_HUGEPAGE);
    stats_.bytes_reserved += length - kHugePage;
    return aligned;
  }

  void* carve(size_t bytes) {
    if (arena_left_ < bytes) {
      arena_ = static_cast<std::byte*>(map(kArenaBytes));
      arena_left_ = kArenaBytes;
    }
    void* block = arena_;
    arena_ += bytes;
    arena_left_ -= bytes;
    return block;
  }

  mutable std::mutex mutex_;
  std::map<size_t, std::vector<void*>> free_;
  std::byte* arena_ = nullptr;
  size_t arena_left_ = 0;
  MemoryStats stats_;
};

}  // namespace

const std::shared_ptr<Allocator>& cpu_allocator() {
  // Never destroyed: tensors with static lifetime may outlive every other static.
  static const auto* allocator =
      new std::shared_ptr<Allocator>(std::make_shared<CachingCpuAllocator>());
  return *allocator;
}

}  // namespace sluice
