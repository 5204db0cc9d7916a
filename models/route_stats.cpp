#include "models/route_stats.h"

#include <algorithm>
#include <cmath>

#include "autograd/autograd.h"
#include "ops/dirichlet.h"

namespace sluice {
namespace {

double entropy_of(const std::array<double, kExperts>& p) {
  double entropy = 0;
  for (const double value : p) {
    if (value > 0) entropy -= value * std::log(value);
  }
  return entropy;
}

std::array<double, kExperts> row(const std::vector<double>& values, size_t token) {
  std::array<double, kExperts> p{};
  double sum = 0;
  for (size_t k = 0; k < kExperts; ++k) sum += values[token * kExperts + k];
  for (size_t k = 0; k < kExperts; ++k) p[k] = values[token * kExperts + k] / sum;
  return p;
}

double mean_of(const Tensor& tensor) {
  const auto values = to_dtype(tensor, DType::f64).to_vector<double>();
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / double(std::max<size_t>(1, values.size()));
}

}  // namespace

RouteStats posterior_stats(
    const Tensor& concentration,
    const Tensor& weights,
    const std::array<double, kExperts>& costs,
    const std::array<double, kExperts>& prior) {
  const autograd::NoGrad no_grad;
  RouteStats stats;
  const Tensor counts = to_dtype(concentration.detach(), DType::f64);
  const auto values = counts.to_vector<double>();
  const auto used =
      weights.defined() ? to_dtype(weights.detach(), DType::f64).to_vector<double>() : values;
  const size_t tokens = values.size() / kExperts;
  if (tokens == 0) return stats;
  const double n = double(tokens);
  const double unit = std::log(double(kExperts));
  double token_entropy = 0;
  for (size_t t = 0; t < tokens; ++t) {
    const auto mean = row(values, t);
    for (size_t k = 0; k < kExperts; ++k) stats.mean_weight[k] += mean[k] / n;
    token_entropy += entropy_of(mean) / n;
    stats.sample_entropy += entropy_of(row(used, t)) / unit / n;
    stats.decided += (*std::max_element(mean.begin(), mean.end()) > 0.9 ? 1.0 : 0.0) / n;
  }
  stats.entropy = token_entropy / unit;
  stats.mutual_information = entropy_of(stats.mean_weight) - token_entropy;
  for (size_t k = 0; k < kExperts; ++k) stats.expected_cost += stats.mean_weight[k] * costs[k];
  const Tensor beta = from_values(std::vector<double>(prior.begin(), prior.end()), {kExperts});
  stats.kl = mean_of(ops::dirichlet_kl(counts, beta));
  stats.dirichlet_entropy = mean_of(ops::dirichlet_entropy(counts));
  return stats;
}

std::array<double, kExperts> route_shares(const Tensor& ids) {
  std::array<double, kExperts> share{};
  const auto values = ids.to_vector<int32_t>();
  for (const int32_t id : values) {
    if (id >= 0) share[size_t(id)] += 1.0 / double(values.size());
  }
  return share;
}

}  // namespace sluice
