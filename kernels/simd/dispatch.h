// Which instruction set the CPU kernels use, chosen once at run time.
#pragma once

#include "engine/context.h"

namespace sluice::kernels {

enum class SimdLevel : int { baseline = 0, avx2 = 1, avx512 = 2 };

/// The best level that this build has and this CPU runs, or the one named by SLUICE_SIMD
/// (baseline, avx2, avx512), which must be one of those: otherwise the process says so on standard
/// error and uses the best one below it.
SimdLevel simd_level();

/// Highest level that both the build and the CPU have, whatever SLUICE_SIMD says.
SimdLevel best_simd_level();

const char* name_of(SimdLevel level);

/// For tests: use `level` from now on. The caller has checked it against best_simd_level().
void force_simd_level(SimdLevel level);

}  // namespace sluice::kernels

// Ends a kernel source: declares the three compiled copies of `function(CpuContext&, const Args&)`
// and, in the one object compiled for the baseline, defines the launcher that picks one.
#if defined(SLUICE_ISA_ALL)
#define SLUICE_DISPATCH_DECLARE(function, Args) \
  namespace baseline {                          \
  void function(CpuContext&, const Args&);      \
  }                                             \
  namespace avx2 {                              \
  void function(CpuContext&, const Args&);      \
  }                                             \
  namespace avx512 {                            \
  void function(CpuContext&, const Args&);      \
  }
#define SLUICE_DISPATCH_BODY(function)          \
  switch (simd_level()) {                       \
    case SimdLevel::avx512:                     \
      return avx512::function(context, args);   \
    case SimdLevel::avx2:                       \
      return avx2::function(context, args);     \
    case SimdLevel::baseline:                   \
      return baseline::function(context, args); \
  }
#else
#define SLUICE_DISPATCH_DECLARE(function, Args) \
  namespace baseline {                          \
  void function(CpuContext&, const Args&);      \
  }
#define SLUICE_DISPATCH_BODY(function) return baseline::function(context, args);
#endif

#if defined(SLUICE_ISA_IS_BASELINE)
#define SLUICE_DISPATCH(function, Args)                                                   \
  namespace sluice::kernels {                                                             \
  SLUICE_DISPATCH_DECLARE(function, Args)                                                 \
  void function(CpuContext& context, const Args& args) { SLUICE_DISPATCH_BODY(function) } \
  }
#else
#define SLUICE_DISPATCH(function, Args)
#endif
