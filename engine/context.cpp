// How many threads the process-wide pool has, and which context the calling thread uses.
#include "engine/context.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include <sched.h>

namespace sluice {
namespace {

// CPUs that a container may use on average, rounded up: a pool of one thread per core of the host
// would be stopped by the scheduler for most of each period. 0 when there is no limit.
int quota_threads() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0;
  double period = 0;
  if (!(file >> quota >> period) || period <= 0) return 0;  // "max 100000" is no number
  return std::max(1, static_cast<int>(std::ceil(quota / period)));
}

int default_threads() {
  if (const char* text = std::getenv("SLUICE_NUM_THREADS")) {
    int threads = 0;
    const char* const end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, threads);
    SLUICE_CHECK(
        error == std::errc() && stop == end && threads >= 1 && threads <= 1024,
        ArgumentError,
        "SLUICE_NUM_THREADS: must be in [1, 1024], got '{}'",
        text);
    return threads;
  }
  cpu_set_t set;
  int threads = sched_getaffinity(0, sizeof(set), &set) == 0
                    ? CPU_COUNT(&set)
                    : static_cast<int>(std::thread::hardware_concurrency());
  if (const int quota = quota_threads(); quota > 0) threads = std::min(threads, quota);
  return std::clamp(threads, 1, 1024);
}

struct Default {
  ThreadPool pool{default_threads()};
  CpuContext context{pool};
};

// Never destroyed: tensors with static lifetime may need it last.
Default& process_default() {
  static auto* const instance = new Default;
  return *instance;
}

thread_local CpuContext* scoped = nullptr;

}  // namespace

CpuContext& cpu_context() { return scoped != nullptr ? *scoped : process_default().context; }

void set_num_threads(int threads) { process_default().pool.resize(threads); }

int num_threads() { return cpu_context().threads.size(); }

ContextScope::ContextScope(CpuContext& context) : outer_(scoped) { scoped = &context; }
ContextScope::~ContextScope() { scoped = outer_; }

}  // namespace sluice
