// What a routed layer did with its tokens, in numbers.
#pragma once

#include <array>

#include "engine/tensor.h"
#include "models/meta_attention_config.h"

namespace sluice {

/// Averages over the tokens of one call. Entropies are shares of ln 3, so 1 means undecided.
struct RouteStats {
  std::array<double, kExperts> mean_weight{};  ///< posterior mean
  std::array<double, kExperts> share{};        ///< tokens that ran on each expert (hard routes)
  double entropy = 0;                          ///< of the posterior mean, per token
  double sample_entropy = 0;                   ///< of the weights that the layer used
  double mutual_information = 0;  ///< H(mean over tokens) - mean over tokens of H, in nats
  double decided = 0;             ///< tokens whose largest posterior mean exceeds 0.9
  double dirichlet_entropy = 0;   ///< differential, in nats
  double kl = 0;                  ///< KL(posterior || prior), in nats
  double expected_cost = 0;       ///< sum of mean_weight times price, all-full = 1
  double hard_cost = 0;           ///< sum of share times price
};

/// Fills the fields that the posterior determines.
///
/// Shapes  concentration, weights: (B, T, 3); weights may be undefined (then the mean counts)
RouteStats posterior_stats(
    const Tensor& concentration,
    const Tensor& weights,
    const std::array<double, kExperts>& costs,
    const std::array<double, kExperts>& prior);

/// Share of each expert in ids (B, T), -1 counted nowhere.
std::array<double, kExperts> route_shares(const Tensor& ids);

}  // namespace sluice
