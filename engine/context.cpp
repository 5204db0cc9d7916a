#include "engine/context.h"

#include <cstdlib>
#include <memory>

#include <sched.h>

namespace sluice {
namespace {

int default_threads() {
  if (const char* text = std::getenv("SLUICE_NUM_THREADS")) {
    const int threads = std::atoi(text);
    SLUICE_CHECK(
        threads >= 1, ArgumentError, "SLUICE_NUM_THREADS: must be >= 1, got '{}'", text);
    return threads;
  }
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return 1;
}

struct Default {
  explicit Default(int threads) : pool(std::make_unique<ThreadPool>(threads)), context{*pool} {}
  std::unique_ptr<ThreadPool> pool;
  CpuContext context;
};

std::unique_ptr<Default>& default_slot() {
  static auto* slot = new std::unique_ptr<Default>(std::make_unique<Default>(default_threads()));
  return *slot;
}

thread_local CpuContext* scoped = nullptr;

}  // namespace

CpuContext& cpu_context() { return scoped != nullptr ? *scoped : default_slot()->context; }

void set_num_threads(int threads) {
  auto& slot = default_slot();
  if (slot->pool->size() != threads) slot = std::make_unique<Default>(threads);
}

int num_threads() { return cpu_context().threads.size(); }

ContextScope::ContextScope(CpuContext& context) : outer_(scoped) { scoped = &context; }
ContextScope::~ContextScope() { scoped = outer_; }

}  // namespace sluice
