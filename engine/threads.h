// The thread pool that CPU kernels run on. Chunks, not threads, are the unit of work: a kernel cuts
// its work into a number of chunks that does not depend on the thread count, so neither do the
// bits.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace sluice {

/// Runs chunks of work on a fixed number of threads, the caller included.
///
/// Workers start at the first `run` that has use for them, spin for some microseconds after each,
/// then sleep. A run does not wait for workers that are slow to wake up: the caller takes the
/// chunks that nobody else has begun. If the system refuses a thread, the pool works with fewer.
///
/// Thread-safety: one `run` at a time; a second caller waits its turn. A `run` from inside a chunk,
/// of this pool or another, executes inline on the calling thread. After fork the child has the
/// same pools with workers of their own, whatever other threads were doing; a child forked inside a
/// chunk may only exec or _exit.
class ThreadPool {
 public:
  /// A pool of `threads` threads, the caller of `run` among them. Throws ArgumentError unless
  /// `threads` is in [1, 1024].
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  /// Changes the number of threads after waiting for the current run. Not between a kernel's look
  /// at `size()` and its run. Throws ArgumentError as the constructor, and inside a chunk.
  void resize(int threads);

  using Body = void (*)(void* argument, int64_t chunk, int thread);

  /// Calls body(argument, chunk, thread) once for each chunk in [0, chunks), claimed in rising
  /// order; `thread` in [0, size()) tells which scratch belongs to the caller. Returns when all are
  /// done. The first exception from a chunk is rethrown here once the chunks under way have ended;
  /// those not yet begun are skipped.
  void run(int64_t chunks, Body body, void* argument);

 private:
  struct State;
  static void renew_in_forked_child();

  std::unique_ptr<State> state_;
};

/// `body(chunk)` or `body(chunk, thread)` for each chunk in [0, chunks) on `pool`.
template <class F>
void parallel_for(ThreadPool& pool, int64_t chunks, F&& body) {
  using Function = std::remove_reference_t<F>;
  pool.run(
      chunks,
      [](void* argument, int64_t chunk, int thread) {
        auto& function = *static_cast<Function*>(argument);
        if constexpr (std::is_invocable_v<Function&, int64_t, int>)
          function(chunk, thread);
        else
          function(chunk);
      },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace sluice
