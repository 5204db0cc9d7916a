// See machine.h.
#include "tools/machine.h"

#include <fstream>

#include <fmt/core.h>

#include "engine/context.h"
#include "kernels/simd/dispatch.h"

namespace sluice::tools {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

}  // namespace

std::string describe_machine() {
  return fmt::format(
      "{}, {} threads, {} kernels, compiler {}",
      processor_name(),
      num_threads(),
      kernels::name_of(kernels::simd_level()),
      __VERSION__);
}

}  // namespace sluice::tools
