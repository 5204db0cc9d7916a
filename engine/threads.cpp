#include "engine/threads.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <pthread.h>

#include "engine/errors.h"

namespace sluice {
namespace {

// Counts forks of this process. A child has none of its parent's workers, so a pool that was made
// under another count starts its own.
std::atomic<uint64_t> fork_generation{0};

void count_forks() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { fork_generation.fetch_add(1); });
  (void)registered;
}

// The pool whose chunk this thread is executing: a nested run on any pool goes inline, which keeps
// a kernel called from a chunk from waiting for itself.
thread_local bool inside_chunk = false;

constexpr int kSpins = 4000;  // about 20 us: longer than the gap between two kernels of a step

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

struct ThreadPool::State {
  explicit State(int threads) : size(threads) {}

  // What one run shares with its workers. Written by the caller before `epoch` is raised.
  Body body = nullptr;
  void* argument = nullptr;
  int64_t chunks = 0;
  std::atomic<int64_t> next{0};
  std::atomic<int> busy{0};
  std::exception_ptr error;
  std::mutex error_mutex;

  const int size;
  std::atomic<uint64_t> epoch{0};
  std::atomic<bool> stop{false};
  std::atomic<int> sleepers{0};
  std::mutex sleep_mutex;
  std::condition_variable wake;
  std::mutex run_mutex;
  uint64_t generation = 0;
  std::vector<std::thread> workers;

  void work(int thread) {
    inside_chunk = true;
    for (;;) {
      const int64_t chunk = next.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= chunks) break;
      try {
        body(argument, chunk, thread);
      } catch (...) {
        const std::lock_guard lock(error_mutex);
        if (!error) error = std::current_exception();
      }
    }
    inside_chunk = false;
  }

  void worker_main(int thread) {
    uint64_t seen = 0;
    for (;;) {
      for (int spin = 0; spin < kSpins && epoch.load(std::memory_order_acquire) == seen; ++spin) {
        relax();
      }
      if (epoch.load(std::memory_order_acquire) == seen) {
        std::unique_lock lock(sleep_mutex);
        sleepers.fetch_add(1);
        wake.wait(lock, [&] { return epoch.load() != seen; });
        sleepers.fetch_sub(1);
      }
      seen = epoch.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) return;
      work(thread);
      busy.fetch_sub(1, std::memory_order_release);
    }
  }

  void start_workers() {
    generation = fork_generation.load();
    for (int thread = 1; thread < size; ++thread) {
      workers.emplace_back([this, thread] { worker_main(thread); });
    }
  }

  void raise_epoch() {
    epoch.fetch_add(1);
    if (sleepers.load() > 0) {
      // Taking the mutex orders this after a worker's decision to sleep.
      { const std::lock_guard lock(sleep_mutex); }
      wake.notify_all();
    }
  }
};

ThreadPool::ThreadPool(int threads) {
  SLUICE_CHECK(
      threads >= 1 && threads <= 1024,
      ArgumentError,
      "threads: must be in [1, 1024], got {}",
      threads);
  count_forks();
  state_ = std::make_unique<State>(threads);
  state_->start_workers();
}

ThreadPool::~ThreadPool() {
  if (state_->generation != fork_generation.load()) {
    // The workers exist in the parent only; joining them here would wait for ever.
    for (auto& worker : state_->workers) worker.detach();
    (void)state_.release();
    return;
  }
  state_->stop.store(true);
  state_->raise_epoch();
  for (auto& worker : state_->workers) worker.join();
}

int ThreadPool::size() const { return state_->size; }

void ThreadPool::run(int64_t chunks, Body body, void* argument) {
  if (chunks <= 0) return;
  if (state_->generation != fork_generation.load()) {
    // In a forked child: the old state may hold locked mutexes, so it is left alone, not destroyed.
    auto fresh = std::make_unique<State>(state_->size);
    for (auto& worker : state_->workers) worker.detach();
    (void)state_.release();
    state_ = std::move(fresh);
    state_->start_workers();
  }
  if (chunks == 1 || state_->size == 1 || inside_chunk) {
    const bool outer = inside_chunk;
    inside_chunk = true;
    struct Restore {
      bool outer;
      ~Restore() { inside_chunk = outer; }
    } restore{outer};
    for (int64_t chunk = 0; chunk < chunks; ++chunk) body(argument, chunk, 0);
    return;
  }
  State& state = *state_;
  const std::lock_guard lock(state.run_mutex);
  state.body = body;
  state.argument = argument;
  state.chunks = chunks;
  state.next.store(0, std::memory_order_relaxed);
  state.busy.store(state.size - 1, std::memory_order_relaxed);
  state.error = nullptr;
  state.raise_epoch();
  state.work(0);
  for (int spin = 0; state.busy.load(std::memory_order_acquire) > 0; ++spin) {
    if (spin < kSpins) relax();
    else std::this_thread::yield();
  }
  if (state.error) std::rethrow_exception(state.error);
}

}  // namespace sluice
