// The caching allocator: alignment, reuse, statistics, limits, poison, threads, and what
// AddressSanitizer sees of it.
#include "engine/memory.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/errors.h"
#include "engine/size_classes.h"
#include "tests/support/compare.h"

namespace sluice {
namespace {

TEST(SizeClasses, AreNumberedWithoutGapsAndWasteAtMostAFifth) {
  size_t block = 64;
  for (int index = 0; block < (size_t{1} << 62); ++index) {
    ASSERT_EQ(size_class_index(block), index) << block;
    ASSERT_LT(index, kSizeClasses);
    ASSERT_EQ(block % kBlockAlignment, 0u);
    ASSERT_EQ(size_class_above(block), block);
    ASSERT_EQ(size_class_below(block), block);
    const size_t next = size_class_above(block + 1);
    ASSERT_GT(next, block);
    ASSERT_EQ(size_class_above(next), next);
    ASSERT_EQ(size_class_above(next - 1), next);
    ASSERT_EQ(size_class_below(next - 1), block);
    if (block >= 256) {
      ASSERT_LE(double(next - block - 1) / double(next), 0.2);
    }
    block = next;
  }
  EXPECT_LT(size_class_index(size_t{1} << 62), kSizeClasses);
  EXPECT_EQ(size_class_above(0), 64u);
}

class Memory : public ::testing::Test {
 protected:
  Allocator& allocator_ = *cpu_allocator();
  const MemoryStats before_ = allocator_.stats();
};

TEST_F(Memory, BlocksAreAlignedAndDisjoint) {
  struct Block {
    std::byte* begin;
    size_t bytes;
  };
  std::vector<Block> blocks;
  for (const size_t bytes : {0, 1, 63, 64, 65, 1000, 4096, 100'000, 1 << 20, 9 << 20, 20 << 20}) {
    for (int copy = 0; copy < 3; ++copy) {
      auto* const begin = static_cast<std::byte*>(allocator_.allocate(bytes));
      ASSERT_NE(begin, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(begin) % 64, 0u);
      if (bytes > (8 << 20)) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(begin) % (2 << 20), 0u);
      }
      std::memset(begin, int(blocks.size()), bytes);
      blocks.push_back({begin, bytes});
    }
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto& [begin, bytes] = blocks[i];
    for (size_t at = 0; at < bytes; at += bytes / 3 + 1) EXPECT_EQ(begin[at], std::byte(i));
    allocator_.deallocate(blocks[i].begin, blocks[i].bytes);
  }
  EXPECT_EQ(allocator_.stats().bytes_in_use, before_.bytes_in_use);
}

TEST_F(Memory, FreedBlockServesTheNextRequestOfItsClass) {
  for (const size_t bytes : {1000, 10 << 20}) {
    void* const first = allocator_.allocate(bytes);
    allocator_.deallocate(first, bytes);
    const MemoryStats cached = allocator_.stats();
    void* const second = allocator_.allocate(bytes - 3);
    const MemoryStats reused = allocator_.stats();
    EXPECT_EQ(reused.cache_hits, cached.cache_hits + 1);
    EXPECT_EQ(reused.allocations, cached.allocations + 1);
    EXPECT_EQ(reused.bytes_reserved, cached.bytes_reserved);
    allocator_.deallocate(second, bytes - 3);
  }
}

TEST_F(Memory, StatisticsFollowUseAndPeak) {
  allocator_.reset_peak();
  EXPECT_EQ(allocator_.stats().peak_bytes_in_use, before_.bytes_in_use);
  void* const a = allocator_.allocate(1'000'000);
  void* const b = allocator_.allocate(1'000'000);
  const size_t both = allocator_.stats().bytes_in_use - before_.bytes_in_use;
  EXPECT_GE(both, 2'000'000u);
  EXPECT_LE(both, 2'500'000u);
  allocator_.deallocate(a, 1'000'000);
  allocator_.deallocate(b, 1'000'000);
  EXPECT_EQ(allocator_.stats().bytes_in_use, before_.bytes_in_use);
  void* const later = allocator_.allocate(1000);
  EXPECT_EQ(allocator_.stats().peak_bytes_in_use, before_.bytes_in_use + both);
  allocator_.deallocate(later, 1000);
  allocator_.reset_peak();
  EXPECT_EQ(allocator_.stats().peak_bytes_in_use, before_.bytes_in_use);
}

TEST_F(Memory, RestOfAnArenaIsUsed) {
  // 5 MiB blocks leave 2 MiB of each 32 MiB arena (a class less where guards lie between blocks),
  // which the next requests of that size must find.
  std::vector<void*> large;
  const size_t bytes = 5 << 20;
  const size_t whole = 2 << 20;
  const size_t guarded = whole / 8 * 7;
  const size_t reserved = allocator_.stats().bytes_reserved;
  while (allocator_.stats().bytes_reserved < reserved + (64 << 20)) {
    large.push_back(allocator_.allocate(bytes));
  }
  const MemoryStats full = allocator_.stats();
  void* const rest = allocator_.allocate(whole);
  void* const less = allocator_.allocate(guarded);
  EXPECT_GE(allocator_.stats().cache_hits, full.cache_hits + 1);
  allocator_.deallocate(rest, whole);
  allocator_.deallocate(less, guarded);
  for (void* const block : large) allocator_.deallocate(block, bytes);
}

TEST_F(Memory, TrimGivesLargeBlocksBack) {
  const size_t bytes = 16 << 20;
  void* const kept = allocator_.allocate(bytes);
  std::memset(kept, 7, bytes);
  void* const freed = allocator_.allocate(bytes);
  allocator_.deallocate(freed, bytes);
  const size_t reserved = allocator_.stats().bytes_reserved;
  const size_t trimmed = allocator_.trim();
  EXPECT_GE(trimmed, bytes);
  EXPECT_EQ(allocator_.stats().bytes_reserved, reserved - trimmed);
  EXPECT_EQ(static_cast<unsigned char*>(kept)[bytes - 1], 7);
  allocator_.deallocate(kept, bytes);
  EXPECT_GE(allocator_.trim(), bytes);
  EXPECT_EQ(allocator_.trim(), 0u);
}

TEST_F(Memory, ImpossibleRequestIsAnErrorAndTheNextCallWorks) {
  SLUICE_EXPECT_THROW(
      allocator_.allocate(size_t{1} << 44),
      ArgumentError,
      "allocate: needs 17592186044416 bytes, but at most");
  SLUICE_EXPECT_THROW(allocator_.allocate(size_t{1} << 62), ArgumentError, "bytes, but at most");
  SLUICE_EXPECT_THROW(allocator_.allocate(SIZE_MAX), ArgumentError, "must be at most 2^62");
  EXPECT_EQ(allocator_.stats().bytes_in_use, before_.bytes_in_use);
  allocator_.deallocate(allocator_.allocate(100), 100);
}

TEST_F(Memory, PoisonFillsFreshAndReusedBlocks) {
  ASSERT_TRUE(memory_poison());  // the test program turns it on
  const size_t bytes = 10'000;
  for (int repeat = 0; repeat < 2; ++repeat) {
    auto* const block = static_cast<unsigned char*>(allocator_.allocate(bytes));
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(block[i], 0xFF) << i;
    std::memset(block, 1, bytes);
    allocator_.deallocate(block, bytes);
  }
  set_memory_poison(false);
  EXPECT_FALSE(memory_poison());
  set_memory_poison(true);
}

TEST_F(Memory, ThreadsNeverShareABlock) {
  std::atomic<int> clashes{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::pair<unsigned char*, size_t>> held;
      for (size_t i = 0; i < 2000; ++i) {
        const size_t bytes = 1 + (i * 977 + size_t(t) * 131) % 5000;
        auto* const block = static_cast<unsigned char*>(allocator_.allocate(bytes));
        std::memset(block, t, bytes);
        held.emplace_back(block, bytes);
        if (held.size() == 20) {
          for (const auto& [pointer, size] : held) {
            clashes += pointer[0] != t || pointer[size / 2] != t || pointer[size - 1] != t;
            allocator_.deallocate(pointer, size);
          }
          held.clear();
        }
      }
      for (const auto& [pointer, size] : held) allocator_.deallocate(pointer, size);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(clashes, 0);
  EXPECT_EQ(allocator_.stats().bytes_in_use, before_.bytes_in_use);
}

#if defined(__SANITIZE_ADDRESS__)

// Reads through a volatile pointer, which the compiler can neither drop nor foresee.
unsigned char peek(const void* base, std::ptrdiff_t offset) {
  return *(static_cast<const volatile unsigned char*>(base) + offset);
}

TEST_F(Memory, AddressSanitizerSeesEveryByteOutside) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (const size_t bytes : {100, 4096, 9 << 20}) {
    void* const block = allocator_.allocate(bytes);
    void* const neighbour = allocator_.allocate(bytes);
    EXPECT_EQ(peek(block, 0), 0xFF);
    EXPECT_EQ(peek(block, std::ptrdiff_t(bytes) - 1), 0xFF);
    EXPECT_DEATH(peek(block, std::ptrdiff_t(bytes)), "use-after-poison");
    EXPECT_DEATH(peek(block, std::ptrdiff_t(bytes) + 60), "use-after-poison");
    if (bytes <= 4096) {
      EXPECT_DEATH(peek(block, -1), "use-after-poison");
    }
    allocator_.deallocate(neighbour, bytes);
    allocator_.deallocate(block, bytes);
    EXPECT_DEATH(peek(block, 0), "use-after-poison");
  }
}

#endif

}  // namespace
}  // namespace sluice
