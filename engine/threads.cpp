// A run is open while `epoch` is odd. Workers enter an open run by raising `active`, and the caller
// closes the run before it waits for `active` to fall to 0. Both sides write their own variable
// before they read the other's, in sequentially consistent order: either the worker sees the run
// closed and stays out, or the caller sees the worker and waits.
#include "engine/threads.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>

#include "engine/errors.h"

namespace sluice {
namespace {

// True while this thread executes a chunk of any pool: a nested run goes inline, which keeps a
// kernel called from a chunk from waiting for itself.
thread_local bool inside_chunk = false;

// Longer than the gap between two kernels of a training step, about as long as waking a sleeper.
constexpr auto kSpinTime = std::chrono::microseconds(50);
constexpr int kSpinsPerClock = 32;
constexpr size_t kCacheLine = 64;

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until `done()` or until kSpinTime has passed; tells which.
template <class Done>
bool spin_until(Done&& done) {
  if (done()) return true;
  const auto limit = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int spin = 0; spin < kSpinsPerClock; ++spin) {
      if (done()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < limit);
  return false;
}

class InsideChunk {
 public:
  InsideChunk() : outer_(std::exchange(inside_chunk, true)) {}
  ~InsideChunk() { inside_chunk = outer_; }

 private:
  bool outer_;
};

// Keeps signals meant for the host program away from the threads that are started meanwhile. Faults
// and the profiler's clock go to the thread that they concern and stay as they are.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int kept : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF}) {
      sigdelset(&blocked, kept);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, &outer_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &outer_, nullptr); }

 private:
  sigset_t outer_;
};

void check_threads(int threads) {
  SLUICE_CHECK(
      threads >= 1 && threads <= 1024,
      ArgumentError,
      "threads: must be in [1, 1024], got {}",
      threads);
}

}  // namespace

struct ThreadPool::State {
  explicit State(int threads) : size(threads) {}

  std::mutex run_mutex;  // held by the caller of run
  std::atomic<int> size;
  bool started = false;
  std::vector<std::thread> workers;

  // What one run shares with its workers, written before it opens.
  Body body = nullptr;
  void* argument = nullptr;
  int64_t chunks = 0;
  std::exception_ptr error;
  std::mutex error_mutex;

  // Each on its own line: workers that poll `epoch` must not disturb those that claim chunks.
  alignas(kCacheLine) std::atomic<int64_t> next{0};
  alignas(kCacheLine) std::atomic<uint64_t> epoch{0};
  alignas(kCacheLine) std::atomic<int> active{0};
  alignas(kCacheLine) std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};
  std::mutex sleep_mutex;
  std::condition_variable wake;

  void work(int thread) {
    const InsideChunk inside;
    for (;;) {
      const int64_t chunk = next.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= chunks) return;
      try {
        body(argument, chunk, thread);
      } catch (...) {
        next.store(chunks, std::memory_order_relaxed);
        const std::lock_guard lock(error_mutex);
        if (!error) error = std::current_exception();
      }
    }
  }

  bool wanted(uint64_t seen) const {
    const uint64_t now = epoch.load(std::memory_order_seq_cst);
    return (now % 2 == 1 && now != seen) || stop.load(std::memory_order_acquire);
  }

  void worker_main(int thread) {
    uint64_t seen = 0;  // the last run that this worker took part in
    for (;;) {
      if (!spin_until([&] { return wanted(seen); })) {
        std::unique_lock lock(sleep_mutex);
        sleepers.fetch_add(1, std::memory_order_seq_cst);
        wake.wait(lock, [&] { return wanted(seen); });
        sleepers.fetch_sub(1, std::memory_order_relaxed);
      }
      if (stop.load(std::memory_order_acquire)) return;
      active.fetch_add(1, std::memory_order_seq_cst);
      const uint64_t now = epoch.load(std::memory_order_seq_cst);
      if (now % 2 == 1 && now != seen) {
        seen = now;
        work(thread);
      }
      active.fetch_sub(1, std::memory_order_release);
    }
  }

  void start_workers() {
    started = true;
    const SignalsBlocked blocked;
    try {
      for (int thread = 1; thread < size; ++thread) {
        workers.emplace_back([this, thread] { worker_main(thread); });
      }
    } catch (const std::system_error&) {
      // Nothing depends on how many there are but speed.
    }
  }

  void stop_workers() {
    stop.store(true, std::memory_order_release);
    { const std::lock_guard lock(sleep_mutex); }
    wake.notify_all();
    for (auto& worker : workers) worker.join();
    workers.clear();
    stop.store(false, std::memory_order_relaxed);
    started = false;
  }

  void wake_sleepers(int64_t count) {
    if (sleepers.load(std::memory_order_seq_cst) == 0) return;
    // Taking the mutex orders this after a worker's last look at `epoch` and before its sleep ends.
    { const std::lock_guard lock(sleep_mutex); }
    if (count >= static_cast<int64_t>(workers.size())) {
      wake.notify_all();
    } else {
      for (int64_t i = 0; i < count; ++i) wake.notify_one();
    }
  }
};

namespace {

// All pools of the process, for the child of a fork. Never destroyed: pools may be static.
struct Pools {
  std::mutex mutex;
  std::vector<ThreadPool*> alive;
};

Pools& pools() {
  static auto* const instance = new Pools;
  return *instance;
}

}  // namespace

// The child has none of its parent's workers, and the mutexes are in whatever state they were in at
// the fork, so each pool gets a fresh state. The old one is kept but never looked at again.
void ThreadPool::renew_in_forked_child() {
  static auto* const abandoned = new std::vector<State*>;
  for (ThreadPool* pool : pools().alive) {
    const int size = pool->size();
    abandoned->push_back(pool->state_.release());
    pool->state_ = std::make_unique<State>(size);
  }
  pools().mutex.unlock();
}

ThreadPool::ThreadPool(int threads) {
  check_threads(threads);
  static const int registered = pthread_atfork(
      [] { pools().mutex.lock(); }, [] { pools().mutex.unlock(); }, &renew_in_forked_child);
  (void)registered;
  state_ = std::make_unique<State>(threads);
  const std::lock_guard lock(pools().mutex);
  pools().alive.push_back(this);
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(pools().mutex);
    std::erase(pools().alive, this);
  }
  state_->stop_workers();
}

int ThreadPool::size() const { return state_->size.load(std::memory_order_relaxed); }

void ThreadPool::resize(int threads) {
  check_threads(threads);
  SLUICE_CHECK(!inside_chunk, ArgumentError, "resize: must be called outside of chunks");
  const std::lock_guard lock(state_->run_mutex);
  if (threads == size()) return;
  state_->stop_workers();
  state_->size.store(threads, std::memory_order_relaxed);
}

void ThreadPool::run(int64_t chunks, Body body, void* argument) {
  if (chunks <= 0) return;
  if (chunks == 1 || size() == 1 || inside_chunk) {
    const InsideChunk inside;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) body(argument, chunk, 0);
    return;
  }
  State& state = *state_;
  const std::lock_guard lock(state.run_mutex);
  if (!state.started) state.start_workers();
  state.body = body;
  state.argument = argument;
  state.chunks = chunks;
  state.next.store(0, std::memory_order_relaxed);
  state.epoch.fetch_add(1, std::memory_order_seq_cst);
  state.wake_sleepers(chunks - 1);
  state.work(0);
  state.epoch.fetch_add(1, std::memory_order_seq_cst);
  const auto all_left = [&] { return state.active.load(std::memory_order_seq_cst) == 0; };
  while (!spin_until(all_left)) std::this_thread::yield();
  if (state.error) std::rethrow_exception(std::exchange(state.error, nullptr));
}

}  // namespace sluice
