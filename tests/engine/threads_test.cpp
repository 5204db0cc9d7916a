// The pool: every chunk once, errors, nesting, forks, several callers, and an idle pool that
// sleeps.
#include "engine/threads.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/context.h"
#include "engine/errors.h"
#include "engine/tensor.h"
#include "tests/support/compare.h"

namespace sluice {
namespace {

int64_t sum_of_chunks(ThreadPool& pool, int64_t chunks) {
  std::atomic<int64_t> sum{0};
  parallel_for(pool, chunks, [&](int64_t chunk) { sum += chunk + 1; });
  return sum;
}

int64_t triangle(int64_t n) { return n * (n + 1) / 2; }

TEST(ThreadPool, RunsEveryChunkExactlyOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (const int64_t chunks : {0, 1, 2, 3, 7, 100, 5000}) {
      std::vector<std::atomic<int>> count(static_cast<size_t>(chunks));
      std::atomic<bool> in_range{true};
      parallel_for(pool, chunks, [&](int64_t chunk, int thread) {
        ++count[static_cast<size_t>(chunk)];
        if (thread < 0 || thread >= threads) in_range = false;
      });
      for (const auto& times : count) ASSERT_EQ(times, 1) << threads << " threads";
      EXPECT_TRUE(in_range);
    }
  }
}

TEST(ThreadPool, ThreadNumbersSeparateScratch) {
  ThreadPool pool(4);
  std::vector<int64_t> partial(4, 0);  // no atomics: TSan sees two threads with one number
  for (int repeat = 0; repeat < 50; ++repeat) {
    parallel_for(pool, 64, [&](int64_t, int thread) { ++partial[static_cast<size_t>(thread)]; });
  }
  EXPECT_EQ(std::accumulate(partial.begin(), partial.end(), int64_t{0}), 50 * 64);
}

TEST(ThreadPool, ManyShortRuns) {
  ThreadPool pool(3);
  for (int64_t i = 0; i < 20'000; ++i) {
    const int64_t chunks = i % 7;
    ASSERT_EQ(sum_of_chunks(pool, chunks), triangle(chunks)) << i;
  }
}

TEST(ThreadPool, RunsAfterItsWorkersFellAsleep) {
  ThreadPool pool(3);
  for (int i = 0; i < 20; ++i) {
    // Around the time at which workers stop spinning, where a lost wake-up would show as a hang.
    std::this_thread::sleep_for(std::chrono::microseconds(10 * i));
    std::atomic<int> together{0};
    parallel_for(pool, 3, [&](int64_t) {
      ++together;
      while (together < 3) std::this_thread::yield();  // ends only if all threads take part
    });
    EXPECT_EQ(together, 3);
  }
}

TEST(ThreadPool, IdlePoolUsesNoProcessorTime) {
  ThreadPool pool(4);
  EXPECT_EQ(sum_of_chunks(pool, 100), triangle(100));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto processor_seconds = [] {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
  };
  const double before = processor_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  // Three spinning workers would take 0.3 s of two cores' 0.2 s.
  EXPECT_LT(processor_seconds() - before, 0.02);
}

TEST(ThreadPool, NestedRunIsInlineAndComplete) {
  ThreadPool pool(3);
  ThreadPool other(2);
  std::atomic<int64_t> sum{0};
  std::atomic<bool> same_thread{true};
  parallel_for(pool, 8, [&](int64_t) {
    const auto caller = std::this_thread::get_id();
    for (ThreadPool* inner : {&pool, &other}) {
      parallel_for(*inner, 10, [&](int64_t chunk, int thread) {
        sum += chunk + 1;
        if (thread != 0 || std::this_thread::get_id() != caller) same_thread = false;
      });
    }
  });
  EXPECT_EQ(sum, 8 * 2 * triangle(10));
  EXPECT_TRUE(same_thread);
  EXPECT_EQ(sum_of_chunks(pool, 50), triangle(50));
}

TEST(ThreadPool, ExceptionReachesTheCallerAndThePoolGoesOn) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    for (int repeat = 0; repeat < 20; ++repeat) {
      std::atomic<int> begun{0};
      SLUICE_EXPECT_THROW(
          (parallel_for(
               pool,
               100'000,
               [&](int64_t chunk) {
                 ++begun;
                 if (chunk == 5) throw std::runtime_error("chunk five");
               }),
           0),
          std::runtime_error,
          "chunk five");
      EXPECT_LT(begun, 100'000);  // what was not yet begun is skipped
      EXPECT_EQ(sum_of_chunks(pool, 100), triangle(100));
    }
  }
}

TEST(ThreadPool, AllChunksMayThrow) {
  ThreadPool pool(3);
  EXPECT_THROW(
      parallel_for(
          pool, 100, [](int64_t chunk) { throw std::out_of_range(std::to_string(chunk)); }),
      std::out_of_range);
  EXPECT_EQ(sum_of_chunks(pool, 100), triangle(100));
}

TEST(ThreadPool, TwoCallersShareOnePool) {
  ThreadPool pool(2);
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      for (int64_t i = 1; i < 500; ++i) wrong += sum_of_chunks(pool, i % 11) != triangle(i % 11);
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, TwoPoolsWorkSideBySide) {
  ThreadPool first(2);
  ThreadPool second(3);
  std::atomic<int> wrong{0};
  const auto work = [&](ThreadPool& pool) {
    for (int64_t i = 1; i < 500; ++i) wrong += sum_of_chunks(pool, i % 11) != triangle(i % 11);
  };
  std::thread caller([&] { work(first); });
  work(second);
  caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, ResizeKeepsThePoolUsable) {
  ThreadPool pool(2);
  for (const int threads : {1, 4, 4, 2, 3}) {
    pool.resize(threads);
    EXPECT_EQ(pool.size(), threads);
    EXPECT_EQ(sum_of_chunks(pool, 100), triangle(100));
  }
  SLUICE_EXPECT_THROW((pool.resize(0), 0), ArgumentError, "must be in [1, 1024], got 0");
  SLUICE_EXPECT_THROW(
      (parallel_for(pool, 5, [&](int64_t) { pool.resize(2); }), 0),
      ArgumentError,
      "outside of chunks");
  EXPECT_EQ(sum_of_chunks(pool, 100), triangle(100));
}

TEST(ThreadPool, ResizeWaitsForTheRunOfAnotherThread) {
  ThreadPool pool(3);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread caller([&] {
    while (!stop) wrong += sum_of_chunks(pool, 9) != triangle(9);
  });
  for (int i = 0; i < 40; ++i) pool.resize(1 + i % 4);
  stop = true;
  caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, RefusesImpossibleSizes) {
  SLUICE_EXPECT_THROW(ThreadPool(0), ArgumentError, "threads: must be in [1, 1024], got 0");
  SLUICE_EXPECT_THROW(ThreadPool(1025), ArgumentError, "got 1025");
}

TEST(ThreadPool, SignalsOfTheHostProgramAreNotTakenByWorkers) {
  ThreadPool pool(2);
  std::atomic<int> together{0};
  std::atomic<int> open{0};
  parallel_for(pool, 2, [&](int64_t, int thread) {
    ++together;
    while (together < 2) std::this_thread::yield();
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    if (thread != 0 && sigismember(&blocked, SIGINT) == 0) ++open;
    if (sigismember(&blocked, SIGSEGV) != 0) ++open;
  });
  EXPECT_EQ(open, 0);
}

// The exit status of `child()` run in a forked process, or -1 when it does not end in 20 seconds.
template <class Child>
int exit_status_of_fork(Child&& child) {
  const pid_t pid = fork();
  if (pid == 0) _exit(child() ? 0 : 1);
  for (int polls = 0; polls < 4000; ++polls) {
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) == pid) return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  return -1;
}

#if defined(__SANITIZE_THREAD__)
constexpr bool kForkWithThreads = false;  // TSan ends a forked child that starts threads
#else
constexpr bool kForkWithThreads = true;
#endif

TEST(ThreadPoolFork, ChildComputesWithWorkersOfItsOwn) {
  if (!kForkWithThreads) GTEST_SKIP() << "not possible under ThreadSanitizer";
  ThreadPool pool(3);
  ThreadPool never_used(2);
  EXPECT_EQ(sum_of_chunks(pool, 100), triangle(100));
  const int status = exit_status_of_fork([&] {
    std::atomic<int> together{0};
    parallel_for(pool, 3, [&](int64_t) {
      ++together;
      while (together < 3) std::this_thread::yield();
    });
    return sum_of_chunks(pool, 100) == triangle(100) &&
           sum_of_chunks(never_used, 100) == triangle(100) &&
           exit_status_of_fork([&] { return sum_of_chunks(pool, 9) == triangle(9); }) == 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(sum_of_chunks(pool, 100), triangle(100));
}

TEST(ThreadPoolFork, ChildMayForkWhileOtherThreadsCompute) {
  if (!kForkWithThreads) GTEST_SKIP() << "not possible under ThreadSanitizer";
  std::atomic<bool> stop{false};
  ThreadPool pool(2);
  std::thread busy([&] {
    while (!stop) {
      sum_of_chunks(pool, 16);
      (void)zeros({1000});
    }
  });
  for (int i = 0; i < 10; ++i) {
    const int status = exit_status_of_fork([&] {
      return sum_of_chunks(pool, 16) == triangle(16) && zeros({1000}).to_vector<float>()[999] == 0;
    });
    EXPECT_EQ(status, 0);
  }
  stop = true;
  busy.join();
}

TEST(ThreadPoolFork, DestroyingAPoolInTheChildIsHarmless) {
  if (!kForkWithThreads) GTEST_SKIP() << "not possible under ThreadSanitizer";
  auto pool = std::make_unique<ThreadPool>(3);
  EXPECT_EQ(sum_of_chunks(*pool, 100), triangle(100));
  EXPECT_EQ(exit_status_of_fork([&] { return pool.reset(), true; }), 0);
  EXPECT_EQ(sum_of_chunks(*pool, 100), triangle(100));
}

TEST(Context, InnermostScopeOfTheThreadWins) {
  ThreadPool small(1);
  ThreadPool large(3);
  CpuContext small_context{small};
  CpuContext large_context{large};
  const int outside = num_threads();
  {
    const ContextScope outer(large_context);
    EXPECT_EQ(num_threads(), 3);
    {
      const ContextScope inner(small_context);
      EXPECT_EQ(num_threads(), 1);
    }
    EXPECT_EQ(num_threads(), 3);
    int elsewhere = 0;
    std::thread([&] { elsewhere = num_threads(); }).join();
    EXPECT_EQ(elsewhere, outside);
  }
  EXPECT_EQ(num_threads(), outside);
}

TEST(Context, SizeOfTheProcessWidePoolCanBeChanged) {
  const int before = num_threads();
  CpuContext& held = cpu_context();
  set_num_threads(3);
  EXPECT_EQ(num_threads(), 3);
  EXPECT_EQ(held.threads.size(), 3);
  EXPECT_EQ(sum_of_chunks(held.threads, 100), triangle(100));
  SLUICE_EXPECT_THROW((set_num_threads(0), 0), ArgumentError, "must be in [1, 1024], got 0");
  set_num_threads(before);
}

TEST(Context, DeviceWithoutThatLaunchIsNamed) {
  SLUICE_EXPECT_THROW(
      (with_context({DeviceType::cuda, 1}, "gemm", [](CpuContext&) {}), 0),
      DeviceError,
      "gemm: not available on device cuda:1");
}

}  // namespace
}  // namespace sluice
