#include "kernels/simd/dispatch.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace sluice::kernels {
namespace {

SimdLevel choose() {
  const SimdLevel best = best_simd_level();
  const char* text = std::getenv("SLUICE_SIMD");
  if (text == nullptr || *text == '\0') return best;
  const std::string_view wanted(text);
  for (const SimdLevel level : {SimdLevel::baseline, SimdLevel::avx2, SimdLevel::avx512}) {
    if (wanted != name_of(level)) continue;
    if (level <= best) return level;
    std::fprintf(stderr, "SLUICE_SIMD=%s: not available here, using %s\n", text, name_of(best));
    return best;
  }
  std::fprintf(
      stderr,
      "SLUICE_SIMD: must be baseline, avx2 or avx512, got '%s'; using %s\n",
      text,
      name_of(best));
  return best;
}

std::atomic<SimdLevel>& chosen() {
  static std::atomic<SimdLevel> level{choose()};
  return level;
}

}  // namespace

SimdLevel best_simd_level() {
#if defined(SLUICE_ISA_ALL)
  // All that x86-64-v3 and v4 let the compiler use; a virtual machine may hide any one of them.
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2") ||
      !__builtin_cpu_supports("lzcnt") || !__builtin_cpu_supports("movbe") ||
      !__builtin_cpu_supports("f16c")) {
    return SimdLevel::baseline;
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return SimdLevel::avx512;
  }
  return SimdLevel::avx2;
#else
  return SimdLevel::baseline;
#endif
}

SimdLevel simd_level() { return chosen().load(std::memory_order_relaxed); }
void force_simd_level(SimdLevel level) { chosen().store(level); }

const char* name_of(SimdLevel level) {
  switch (level) {
    case SimdLevel::baseline:
      return "baseline";
    case SimdLevel::avx2:
      return "avx2";
    case SimdLevel::avx512:
      return "avx512";
  }
  return "?";
}

}  // namespace sluice::kernels
