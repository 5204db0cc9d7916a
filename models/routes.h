// From a posterior to one expert per token.
#pragma once

#include <array>
#include <cstdint>

#include "engine/philox.h"
#include "engine/tensor.h"
#include "models/meta_attention_config.h"

namespace sluice {

/// The expert with the largest weight, the lower index among equals.
/// Shapes  weights: (B, T, 3) -> (B, T) i32
Tensor argmax_routes(const Tensor& weights);

/// The entry of each token's route: out[b,t] = weights[b,t,ids[b,t]], NaN where the id is -1, the
/// draw from weights that are no distribution. Gradient to weights.
/// Shapes  weights: (B, T, 3), ids: (B, T) i32, -1..2 -> (B, T)
Tensor route_weights(const Tensor& weights, const Tensor& ids);

/// The same routes in a random order within each batch row: equal counts, no choice.
Tensor shuffle_routes(const Tensor& ids, PhiloxKey key);

/// Independent draws with fixed shares. -> (batch, tokens) i32
Tensor random_routes(
    int64_t batch, int64_t tokens, const std::array<double, kExperts>& shares, PhiloxKey key);

/// Full attention where mask (B, T) u8 is set, the window elsewhere.
Tensor given_routes(const Tensor& mask);

/// Every token to one expert.
Tensor constant_routes(int64_t batch, int64_t tokens, Expert expert);

}  // namespace sluice
