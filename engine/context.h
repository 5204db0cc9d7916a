// What a kernel needs to know about where it runs. Kernels are overloaded on the context type; the
// ops pick one from the tensor's device with SLUICE_LAUNCH.
#pragma once

#include <concepts>

#include "engine/device.h"
#include "engine/errors.h"
#include "engine/threads.h"

namespace sluice {

/// Host execution: the pool that chunks run on.
struct CpuContext {
  ThreadPool& threads;
};

/// The context that ops of this thread use: the innermost ContextScope, else a process-wide one
/// with one pool of as many threads as CPU affinity and the container's quota allow
/// (SLUICE_NUM_THREADS overrides).
CpuContext& cpu_context();

/// Sets the size of the process-wide pool; contexts that refer to it stay valid. Not while another
/// thread computes on it. Throws ArgumentError unless in [1, 1024], and inside a chunk.
void set_num_threads(int threads);
/// The number of threads of cpu_context().
int num_threads();

/// Makes ops of this thread use `context` until the end of the scope.
class ContextScope {
 public:
  explicit ContextScope(CpuContext& context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  CpuContext* outer_;
};

/// Calls `launch(context)` with the context of `device`. A launch that no overload takes, or a
/// device that this build lacks, is a DeviceError naming `op` and the device.
template <class Launch>
void with_context(Device device, const char* op, Launch&& launch) {
  if (device.type == DeviceType::cpu) {
    if constexpr (std::invocable<Launch&, CpuContext&>) {
      launch(cpu_context());
      return;
    }
  }
  throw DeviceError(fmt::format("{}: not available on device {}", op, to_string(device)));
}

}  // namespace sluice

/// Launches `function(context, args)` on `device`; `function` is overloaded on the context type.
#define SLUICE_LAUNCH(device, op, function, args)                                     \
  ::sluice::with_context(                                                             \
      device, op, [&](auto& context) requires requires { function(context, args); } { \
        function(context, args);                                                      \
      })
