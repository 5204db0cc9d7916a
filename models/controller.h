// The network that reads a token and answers with a Dirichlet posterior over the three experts.
#pragma once

#include <cstdint>

#include "engine/tensor.h"
#include "models/initialiser.h"
#include "models/meta_attention_config.h"
#include "models/module.h"

namespace sluice {

/// A Dirichlet per token by its pseudo-counts.
struct Posterior {
  Tensor concentration;  ///< (B, T, 3) f32

  /// Counts divided by their sum, (B, T, 3). Its order is that of the counts: whoever wants the
  /// largest need not ask for it.
  Tensor mean() const;
};

/// Adds evidence to the prior: concentration = beta + softplus(W2 gelu(W1 u + b1) + b2), where u is
/// the normed token, the logarithm of its residual-stream norm (without gradient) and its position
/// as log(1+t) / log(1+context). Counts can only grow.
///
/// Source  arXiv:2605.28384 (controller); features depart from it: the norm is taken before
///         normalisation, where it varies, and the position does not depend on the length of the
///         sequence, so a token keeps its route when the sequence grows.
class Controller {
 public:
  Controller(const MetaAttentionConfig& config, int64_t layer, Initialiser& init);

  /// Shapes  residual, normed: (B, T, C) -> (B, T, 3); `offset` is the position of the first token
  Posterior operator()(const Tensor& residual, const Tensor& normed, int64_t offset) const;

  void collect(const std::string& prefix, std::vector<NamedTensor>& parameters) const;

 private:
  MetaAttentionConfig config_;
  Tensor hidden_weight_;  // (controller width, C + 2)
  Tensor hidden_bias_;    // (controller width)
  Tensor count_weight_;   // (3, controller width)
  Tensor count_bias_;     // (3)
};

}  // namespace sluice
