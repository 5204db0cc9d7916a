// What attention costs on this machine: a handful of measured constants, and the time they predict
// for a list of routes.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>

#include "engine/tensor.h"
#include "models/meta_attention_config.h"

namespace sluice {

/// Milliseconds of one forward attention call over (B, T) tokens and all heads:
///
///   full    base_0 + slope_0 * sum over tiles of (last position + 1)
///   linear  base_1 * B * T + slope_1 * N        (its state must see every token)
///   window  base_2 + slope_2 * sum over tiles of (last - first position + W)
///
/// A tile is kTile neighbours in the expert's list, so learned routes, which cluster, and random
/// ones, which do not, are both priced from the list itself. An expert with no token costs 0.
struct AttentionCostModel {
  static constexpr int64_t kTile = 64;

  std::array<double, kExperts> base{};   ///< ms
  std::array<double, kExperts> slope{};  ///< ms per unit of work
  int threads = 0;                       ///< that it was measured with

  /// Time of each expert for routes ids (B, T) i32; -1 costs nothing.
  std::array<double, kExperts> predict(const Tensor& ids, int64_t window) const;
};

/// Units of work of each expert for `ids`: the sums above, and tokens for the linear expert.
std::array<double, kExperts> route_work(const Tensor& ids, int64_t window);

/// One measured call: the work of one expert and the median time.
struct CostSample {
  double work = 0;
  double milliseconds = 0;
};

/// milliseconds = base + slope * work, fitted with each sample weighted by 1 / milliseconds^2, so
/// that the error in percent counts; neither constant is negative. One amount of work: no slope.
struct CostLine {
  double base = 0;
  double slope = 0;
};
CostLine fit_line(std::span<const CostSample> samples);

/// Times the routed kernels of `config`'s head layout at (batch, tokens), at four shares of random
/// routes and one of clustered ones, and fits base and slope to the medians.
/// Cost  about 50 attention calls
AttentionCostModel measure_costs(const MetaAttentionConfig& config, int64_t batch, int64_t tokens);

nlohmann::json to_json(const AttentionCostModel& model);

}  // namespace sluice
