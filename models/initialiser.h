// Fresh parameters. Each draws from its own random stream, numbered in order of creation.
#pragma once

#include <cstdint>

#include "autograd/autograd.h"
#include "engine/tensor.h"

namespace sluice {

/// Makes leaves that require gradients; the same seed and order of calls give the same values.
class Initialiser {
 public:
  explicit Initialiser(uint64_t seed, uint64_t first_stream = 0)
      : seed_(seed), next_stream_(first_stream) {}

  /// Normal(0, deviation).
  Tensor normal(const Shape& shape, double deviation) {
    const Tensor values = randn(shape, seed_, next_stream_++);
    float* data = values.data<float>();
    for (int64_t i = 0; i < values.numel(); ++i) data[i] *= float(deviation);
    return autograd::set_requires_grad(values);
  }

  Tensor constant(const Shape& shape, double value) {
    return autograd::set_requires_grad(full(shape, value));
  }

 private:
  uint64_t seed_;
  uint64_t next_stream_;
};

}  // namespace sluice
