// The activations that a GEMM can apply to its result. gelu is the exact form x * Phi(x), not its
// tanh approximation.
#pragma once

#include <cstdint>

namespace sluice::kernels {

enum class Activation : uint8_t { none, gelu, silu, relu };

}  // namespace sluice::kernels
