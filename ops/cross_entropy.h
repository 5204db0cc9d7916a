// Cross-entropy of logits against class ids, softmax included.
#pragma once

#include <cstdint>

#include "engine/tensor.h"

namespace sluice::ops {

enum class Reduction : uint8_t { mean, sum, none };

struct CrossEntropyOptions {
  double z_loss = 0;          ///< weight of lse^2, which keeps the normaliser near 1
  int64_t ignore_index = -1;  ///< rows with this target contribute nothing
  Reduction reduction = Reduction::mean;
};

/// Cross-entropy of each row of logits with its target class.
///
///   loss[i] = lse[i] - logits[i, target[i]] + z_loss * lse[i]^2,
///   lse[i] = log sum_v exp(logits[i, v])
///
/// mean divides the sum by the number of rows that are not ignored; without such rows it is 0, and
/// so are the gradients. A row whose logits are all -inf has loss +inf and gradient 0.
///
/// Shapes  logits: (..., V), targets: (...) -> () for mean and sum, (...) for none
/// DTypes  logits: f32, f64, bf16 (sums and result in f32); targets: i32 or i64
/// Units   nats
/// Grads   logits
/// Cost    about 20 flops per logit; saves logits, targets and one lse per row, never probabilities
/// Throws  ShapeError, DTypeError, DeviceError, ArgumentError (a target outside [0, V) that is not
///         ignored, z_loss < 0)
/// Source  z-loss: Chowdhery et al. 2022, arXiv:2204.02311, section 5
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, CrossEntropyOptions options = {});

}  // namespace sluice::ops
