// Free blocks are kept by size class and reused last in, first out. Memory comes from the system in
// 2 MiB-aligned arenas that ask for huge pages: a fresh 4 KiB page costs 1.5 to 11 us on the
// machines this was measured on, so nothing is given back unless asked for or needed.
#include "engine/memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <vector>

#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#include "engine/errors.h"
#include "engine/size_classes.h"

namespace sluice {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kArenaBytes = size_t{32} << 20;
// Above this a request gets its own mapping; below, arenas are carved into classes.
constexpr size_t kLargeBytes = size_t{8} << 20;

#if defined(__SANITIZE_ADDRESS__)
#define SLUICE_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLUICE_ADDRESS_SANITIZER 1
#endif
#endif
#ifdef SLUICE_ADDRESS_SANITIZER
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
// Never handed out, so that running off a block's end does not land in the next block.
constexpr size_t kGap = kSanitized ? kBlockAlignment : 0;

bool poison_default() {
  if (const char* value = std::getenv("SLUICE_POISON")) return std::strcmp(value, "0") != 0;
#ifdef NDEBUG
  return false;
#else
  return true;
#endif
}

std::atomic<bool> poison{poison_default()};

// What this process can have at most. The system would promise more and kill it on use.
size_t system_bytes() {
  struct sysinfo info {};
  if (sysinfo(&info) != 0) return SIZE_MAX;
  const size_t machine = (size_t(info.totalram) + size_t(info.totalswap)) * info.mem_unit;
  std::ifstream file("/sys/fs/cgroup/memory.max");
  size_t container = 0;
  return file >> container ? std::min(machine, container) : machine;  // "max" is no number
}

class CachingCpuAllocator final : public Allocator {
 public:
  void* allocate(size_t bytes) override {
    SLUICE_CHECK(
        bytes <= (size_t{1} << 62),
        ArgumentError,
        "allocate: bytes must be at most 2^62, got {}",
        bytes);
    const size_t rounded = size_class_above(bytes);
    std::byte* block = nullptr;
    {
      const std::lock_guard lock(mutex_);
      SizeClass& cached = classes_[size_t(size_class_index(rounded))];
      if (!cached.free.empty()) {
        block = take(cached);
        ++stats_.cache_hits;
      } else {
        block = rounded > kLargeBytes ? map(rounded + kGap) : carve(rounded);
        SLUICE_CHECK(
            block != nullptr,
            ArgumentError,
            "allocate: needs {} bytes, but at most {} are available ({} in use)",
            bytes,
            limit_ - std::min(limit_, stats_.bytes_reserved),
            stats_.bytes_in_use);
        cached.add_block();
      }
      ++stats_.allocations;
      stats_.bytes_in_use += rounded;
      stats_.peak_bytes_in_use = std::max(stats_.peak_bytes_in_use, stats_.bytes_in_use);
    }
    ASAN_UNPOISON_MEMORY_REGION(block, bytes);
    if (memory_poison()) std::memset(block, 0xFF, kSanitized ? bytes : rounded);
    return block;
  }

  void deallocate(void* pointer, size_t bytes) noexcept override {
    const size_t rounded = size_class_above(bytes);
    ASAN_POISON_MEMORY_REGION(pointer, rounded);
    const std::lock_guard lock(mutex_);
    classes_[size_t(size_class_index(rounded))].free.push_back(static_cast<std::byte*>(pointer));
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

  size_t trim() override {
    const std::lock_guard lock(mutex_);
    return unmap_large();
  }

  // For fork handlers: a child must not inherit a mutex that another thread holds.
  std::mutex& mutex() { return mutex_; }

 private:
  struct SizeClass {
    std::vector<std::byte*> free;
    size_t blocks = 0;  // free or in use

    // Room for all blocks at once, so that deallocate never allocates.
    void add_block() {
      if (++blocks > free.capacity()) free.reserve(2 * blocks);
    }
  };

  static std::byte* take(SizeClass& cached) {
    // The newest is the likeliest to be in the CPU's cache. Under AddressSanitizer the oldest is
    // taken: the longer a block stays unused, the more uses after deallocation are seen.
    const auto chosen = kSanitized ? cached.free.begin() : cached.free.end() - 1;
    std::byte* const block = *chosen;
    cached.free.erase(chosen);
    return block;
  }

  // Null when the system has not that much.
  std::byte* map(size_t bytes) {
    const size_t length = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    const auto fits = [&] { return length <= limit_ && stats_.bytes_reserved <= limit_ - length; };
    void* raw = MAP_FAILED;
    for (int attempt = 0; attempt < 2 && raw == MAP_FAILED; ++attempt) {
      if (attempt == 1) unmap_large();
      if (!fits()) continue;
      const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
      raw = mmap(nullptr, length + kHugePage, PROT_READ | PROT_WRITE, flags, -1, 0);
    }
    if (raw == MAP_FAILED) return nullptr;
    auto* const begin = static_cast<std::byte*>(raw);
    const size_t head = (kHugePage - reinterpret_cast<uintptr_t>(raw) % kHugePage) % kHugePage;
    if (head > 0) munmap(begin, head);
    munmap(begin + head + length, kHugePage - head);
    madvise(begin + head, length, MADV_HUGEPAGE);
    ASAN_POISON_MEMORY_REGION(begin + head, length);
    stats_.bytes_reserved += length;
    return begin + head;
  }

  std::byte* carve(size_t bytes) {
    if (arena_left_ < bytes + kGap) {
      std::byte* const fresh = map(kArenaBytes);
      if (fresh == nullptr) return nullptr;
      split_rest_of_arena();
      arena_ = fresh + kGap;  // a gap in front of the first block, too
      arena_left_ = kArenaBytes - kGap;
    }
    return cut(bytes);
  }

  std::byte* cut(size_t bytes) {
    std::byte* const block = arena_;
    arena_ += bytes + kGap;
    arena_left_ -= bytes + kGap;
    return block;
  }

  void split_rest_of_arena() {
    while (arena_left_ >= kBlockAlignment + kGap) {
      const size_t bytes = size_class_below(arena_left_ - kGap);
      SizeClass& cached = classes_[size_t(size_class_index(bytes))];
      cached.add_block();
      cached.free.push_back(cut(bytes));
    }
  }

  size_t unmap_large() {
    size_t bytes = 0;
    for (size_t block = size_class_above(kLargeBytes + 1); block <= (size_t{1} << 62);
         block = size_class_above(block + 1)) {
      SizeClass& cached = classes_[size_t(size_class_index(block))];
      const size_t length = (block + kGap + kHugePage - 1) / kHugePage * kHugePage;
      for (std::byte* const pointer : cached.free) {
        ASAN_UNPOISON_MEMORY_REGION(pointer, length);
        munmap(pointer, length);
      }
      bytes += length * cached.free.size();
      cached.blocks -= cached.free.size();
      cached.free.clear();
    }
    stats_.bytes_reserved -= bytes;
    return bytes;
  }

  const size_t limit_ = system_bytes();
  mutable std::mutex mutex_;
  std::array<SizeClass, kSizeClasses> classes_;
  std::byte* arena_ = nullptr;
  size_t arena_left_ = 0;
  MemoryStats stats_;
};

// Never destroyed: tensors with static lifetime may outlive every other static.
CachingCpuAllocator& instance() {
  static auto* const allocator = [] {
    auto* const made = new CachingCpuAllocator;
    pthread_atfork(
        [] { instance().mutex().lock(); },
        [] { instance().mutex().unlock(); },
        [] { instance().mutex().unlock(); });
    return made;
  }();
  return *allocator;
}

}  // namespace

void set_memory_poison(bool on) { poison.store(on, std::memory_order_relaxed); }
bool memory_poison() { return poison.load(std::memory_order_relaxed); }

const std::shared_ptr<Allocator>& cpu_allocator() {
  static const auto* const shared = new std::shared_ptr<Allocator>(&instance(), [](Allocator*) {});
  return *shared;
}

}  // namespace sluice
