// Zeroing random elements. Forward and backward are the same kernel: the mask is drawn again.
#pragma once

#include "engine/context.h"
#include "engine/dtype.h"
#include "engine/philox.h"

namespace sluice::kernels {

/// out[i] = scale * x[i] where word i % 4 of counter i / 4, shifted right by 9, is at least
/// `threshold`; else 0.
struct Dropout {
  DType dtype;
  int64_t count;
  const void* x;
  void* out;
  uint32_t threshold;
  double scale;
  PhiloxKey key;
};

void dropout(CpuContext& context, const Dropout& args);

}  // namespace sluice::kernels
