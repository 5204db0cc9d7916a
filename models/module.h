// What a trainable thing is: named parameters, and named buffers that a checkpoint keeps as well.
#pragma once

#include <vector>

#include "engine/safetensors.h"
#include "engine/tensor.h"

namespace sluice {

/// Owns parameters (leaves that require gradients) and buffers (state that the optimiser does not
/// touch). Order and names are stable for one configuration: checkpoints and optimisers rely on it.
/// Thread-safety: one thread at a time.
class Module {
 public:
  virtual ~Module() = default;
  virtual std::vector<NamedTensor> parameters() const = 0;
  virtual std::vector<NamedTensor> buffers() const { return {}; }
};

/// Number of trained values.
inline int64_t parameter_count(const Module& module) {
  int64_t count = 0;
  for (const NamedTensor& named : module.parameters()) count += named.tensor.numel();
  return count;
}

}  // namespace sluice
