// Linear attention written from its sums in f64: every query visits every key that it sees.
#pragma once

#include "tests/reference/attention.h"

namespace sluice::testing {

/// Forward, and backward for grad_out (B, H, Tq, D); lse stays empty. `round` is applied to what a
/// naive version would store.
inline AttentionResult reference_linear_attention(
    const Tensor& q,
    const Tensor& k,
    const Tensor& v,
    const AttentionMask& mask,
    const std::vector<double>& grad_out,
    Rounding round = exact) {
  const int64_t B = q.size(0), H = q.size(1), Tq = q.size(2), D = q.size(3);
  const int64_t Hkv = k.size(1), Tk = k.size(2);
  const auto V = values_of(v);
  auto features = values_of(q);
  auto key_features = values_of(k);
  for (auto* values : {&features, &key_features}) {
    for (double& x : *values) x = round(x > 0 ? x + 1 : std::exp(x));
  }
  AttentionResult r;
  r.out.assign(features.size(), 0);
  r.grad_q.assign(features.size(), 0);
  r.grad_k.assign(V.size(), 0);
  r.grad_v.assign(V.size(), 0);
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t h = 0; h < H; ++h) {
      const int64_t first_key = (b * Hkv + h / (H / Hkv)) * Tk * D;
      for (int64_t i = 0; i < Tq; ++i) {
        if (!mask.computes(b, h, i)) continue;
        const auto row = size_t(((b * H + h) * Tq + i) * D);
        std::vector<size_t> seen;
        std::vector<double> weight;
        double sum = 0;
        for (int64_t j = 0; j < Tk; ++j) {
          if (!mask.sees(b, i, j)) continue;
          seen.push_back(size_t(first_key + j * D));
          double dot = 0;
          for (size_t d = 0; d < size_t(D); ++d) {
            dot += features[row + d] * key_features[seen.back() + d];
          }
          weight.push_back(round(dot));
          sum += weight.back();
        }
        if (sum == 0) continue;
        double pull = 0;
        std::vector<double> grad(size_t(D), 0.0);
        for (size_t d = 0; d < size_t(D); ++d) {
          double out = 0;
          for (size_t n = 0; n < seen.size(); ++n) out += weight[n] * V[seen[n] + d];
          r.out[row + d] = round(out / sum);
          grad[d] = round(grad_out[row + d] / sum);
          pull -= round(r.out[row + d] * grad_out[row + d]) / sum;
        }
        for (size_t n = 0; n < seen.size(); ++n) {
          double grad_weight = pull;
          for (size_t d = 0; d < size_t(D); ++d) {
            grad_weight += grad[d] * V[seen[n] + d];
            r.grad_v[seen[n] + d] += weight[n] * grad[d];
          }
          for (size_t d = 0; d < size_t(D); ++d) {
            r.grad_q[row + d] += round(grad_weight) * key_features[seen[n] + d];
            r.grad_k[seen[n] + d] += round(grad_weight) * features[row + d];
          }
        }
      }
    }
  }
  // phi'(x) = 1 above 0 and e^x = phi(x) below, where phi(x) < 1.
  for (size_t i = 0; i < r.grad_q.size(); ++i) r.grad_q[i] *= std::min(1.0, features[i]);
  for (size_t i = 0; i < r.grad_k.size(); ++i) r.grad_k[i] *= std::min(1.0, key_features[i]);
  for (auto* grads : {&r.grad_q, &r.grad_k, &r.grad_v}) {
    for (double& value : *grads) value = round(value);
  }
  return r;
}

}  // namespace sluice::testing
