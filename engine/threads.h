// The thread pool that CPU kernels run on. Chunks, not threads, are the unit of work: a kernel cuts
// its work into a number of chunks that does not depend on the thread count, so neither do the bits.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace sluice {

/// Runs chunks of work on a fixed number of threads, the caller included.
///
/// Thread-safety: one `run` at a time; a second caller waits its turn. A `run` from inside a chunk
/// executes inline on the calling thread. After fork the child has the same pool with new workers,
/// started at its first `run`. Workers spin for some microseconds for the next run, then sleep.
class ThreadPool {
 public:
  /// A pool of `threads` >= 1 threads, the caller of `run` among them. Throws ArgumentError.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  using Body = void (*)(void* argument, int64_t chunk, int thread);

  /// Calls body(argument, chunk, thread) once for each chunk in [0, chunks), claimed in rising
  /// order; `thread` in [0, size()) tells which scratch belongs to the caller. Returns when all are
  /// done. An exception from a chunk is rethrown here after the others have finished.
  void run(int64_t chunks, Body body, void* argument);

 private:
  struct State;
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
        if constexpr (std::is_invocable_v<Function&, int64_t, int>) function(chunk, thread);
        else function(chunk);
      },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace sluice
