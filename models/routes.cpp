#include "models/routes.h"

#include <limits>
#include <utility>

#include "engine/errors.h"
#include "ops/binary.h"
#include "ops/reduce.h"
#include "ops/top_k.h"
#include "ops/view.h"

namespace sluice {

Tensor argmax_routes(const Tensor& weights) {
  const Tensor ids = ops::top_k(weights.detach(), 1).ids;
  return ops::reshape(ids, {weights.size(0), weights.size(1)});
}

Tensor route_weights(const Tensor& weights, const Tensor& ids) {
  // A one-hot row times the weights: three products per token, and the gradient for free.
  const Tensor one_hot = zeros(weights.shape(), {weights.dtype(), weights.device()});
  const auto routes = ids.to_vector<int32_t>();
  for (size_t token = 0; token < routes.size(); ++token) {
    SLUICE_CHECK(
        routes[token] >= -1 && routes[token] < kExperts,
        ArgumentError,
        "route_weights: ids must be in [-1, {}), got {}",
        kExperts,
        routes[token]);
    float* const row = one_hot.data<float>() + token * kExperts;
    if (routes[token] < 0) {
      row[0] = std::numeric_limits<float>::quiet_NaN();
    } else {
      row[routes[token]] = 1.0f;
    }
  }
  return ops::sum(ops::mul(weights, one_hot), {-1});
}

Tensor shuffle_routes(const Tensor& ids, PhiloxKey key) {
  const Tensor shuffled = clone(ids);
  const int64_t B = ids.size(0);
  const int64_t T = ids.size(1);
  for (int64_t b = 0; b < B; ++b) {
    int32_t* row = shuffled.data<int32_t>() + b * T;
    for (int64_t t = T - 1; t > 0; --t) {
      const auto word = philox4x32(key, uint64_t(b * T + t));
      const uint64_t draw = (uint64_t{word[0]} << 32 | word[1]) % uint64_t(t + 1);
      std::swap(row[t], row[draw]);
    }
  }
  return shuffled;
}

Tensor random_routes(
    int64_t batch, int64_t tokens, const std::array<double, kExperts>& shares, PhiloxKey key) {
  const Tensor ids = empty({batch, tokens}, {DType::i32, {}});
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const auto word = philox4x32(key, uint64_t(i));
    const double draw = unit_double(word[0], word[1]);
    int32_t expert = 0;
    double below = shares[0];
    while (expert + 1 < kExperts && draw > below) below += shares[size_t(++expert)];
    ids.data<int32_t>()[i] = expert;
  }
  return ids;
}

Tensor given_routes(const Tensor& mask) {
  const Tensor ids = empty(mask.shape(), {DType::i32, {}});
  const auto values = mask.to_vector<uint8_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    ids.data<int32_t>()[i] = int32_t(values[i] != 0 ? Expert::full : Expert::window);
  }
  return ids;
}

Tensor constant_routes(int64_t batch, int64_t tokens, Expert expert) {
  return full({batch, tokens}, double(expert), {DType::i32, {}});
}

}  // namespace sluice
