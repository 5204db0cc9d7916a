// Attention written from its equations in f64, one query and one key at a time. Reads the options
// itself and shares nothing with the library but their declaration.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "ops/attention_options.h"
#include "tests/support/compare.h"

namespace sluice::testing {

/// What the options and a window (0: none) say about single queries and keys.
class AttentionMask {
 public:
  AttentionMask(
      int64_t query_rows,
      int64_t key_rows,
      const ops::AttentionOptions& options,
      int64_t window = 0)
      : query_rows_(query_rows), key_rows_(key_rows), causal_(options.causal), window_(window) {
    auto read = [](const Tensor& tensor) {
      return tensor.defined() ? values_of(tensor) : std::vector<double>();
    };
    segments_ = read(options.segments);
    keep_ = read(options.keep);
    query_lengths_ = read(options.query_lengths);
    key_lengths_ = read(options.key_lengths);
    query_offsets_ = read(options.query_offsets);
    key_offsets_ = read(options.key_offsets);
    positions_ = read(options.queries.positions);
    slots_ = read(options.queries.offsets);
    all_live_ = !options.live_heads.defined();
    live_ = read(options.live_heads);
  }

  /// Where row i of batch entry b belongs.
  struct Place {
    int64_t sequence = -1;  ///< -1: in none
    int64_t query_begin = 0, queries = 0;
    int64_t key_begin = 0, keys = 0;
  };
  Place place(int64_t b, int64_t i) const {
    if (query_offsets_.empty()) {
      const auto queries =
          query_lengths_.empty() ? query_rows_ : int64_t(query_lengths_[size_t(b)]);
      const auto keys = key_lengths_.empty() ? key_rows_ : int64_t(key_lengths_[size_t(b)]);
      return i < queries ? Place{b, 0, queries, 0, keys} : Place{};
    }
    for (size_t s = 0; s + 1 < query_offsets_.size(); ++s) {
      if (i < query_offsets_[s] || i >= query_offsets_[s + 1]) continue;
      const auto q = int64_t(query_offsets_[s]);
      const auto k = int64_t(key_offsets_[s]);
      return {
          int64_t(s), q, int64_t(query_offsets_[s + 1]) - q, k, int64_t(key_offsets_[s + 1]) - k};
    }
    return {};
  }

  /// Whether the output of query i is computed at all.
  bool computes(int64_t b, int64_t head, int64_t i) const {
    const Place at = place(b, i);
    if (at.sequence < 0) return false;
    bool live = all_live_;
    for (size_t p = 0; p + 1 < live_.size(); p += 2) {
      live |= int64_t(live_[p]) == at.sequence && int64_t(live_[p + 1]) == head;
    }
    if (!live || slots_.empty()) return live;
    for (auto n = size_t(slots_[size_t(at.sequence)]); n < size_t(slots_[size_t(at.sequence) + 1]);
         ++n) {
      if (int64_t(positions_[n]) == i - at.query_begin) return true;
    }
    return false;
  }

  /// Whether query row i sees key row j.
  bool sees(int64_t b, int64_t i, int64_t j) const {
    const Place at = place(b, i);
    if (at.sequence < 0 || j < at.key_begin || j >= at.key_begin + at.keys) return false;
    const int64_t p = i - at.query_begin + at.keys - at.queries;
    const int64_t key = j - at.key_begin;
    if (causal_ && key > p) return false;
    if (window_ > 0 && causal_ && key <= p - window_) return false;
    if (window_ > 0 && !causal_ && std::abs(p - key) > window_) return false;
    const int64_t row = b * key_rows_ + at.key_begin;
    if (!keep_.empty()) {
      if (keep_[size_t(row + key)] == 0) return false;
      if (p >= 0 && keep_[size_t(row + p)] == 0) return false;
    }
    if (!segments_.empty()) {
      if (p < 0) return false;
      for (int64_t t = std::min(p, key); t < std::max(p, key); ++t) {
        if (segments_[size_t(row + t)] != segments_[size_t(row + t + 1)]) return false;
      }
    }
    return true;
  }

 private:
  int64_t query_rows_, key_rows_;
  bool causal_;
  int64_t window_;
  bool all_live_;
  std::vector<double> segments_, keep_, query_lengths_, key_lengths_, query_offsets_, key_offsets_;
  std::vector<double> positions_, slots_, live_;
};

struct AttentionResult {
  std::vector<double> out, lse, grad_q, grad_k, grad_v;  // row-major (B, H, T, D), lse (B, H, Tq)
};

/// Rounding of every stored intermediate: none for the truth, to bf16 for a naive bf16 version.
using Rounding = double (*)(double);
inline double exact(double x) { return x; }
inline double to_bf16(double x) { return double(float(bfloat16(float(x)))); }

/// Forward, and backward for grad_out (B, H, Tq, D) and, when not empty, grad_lse.
inline AttentionResult reference_attention(
    const Tensor& q,
    const Tensor& k,
    const Tensor& v,
    const AttentionMask& mask,
    double scale,
    const std::vector<double>& grad_out,
    const std::vector<double>& grad_lse = {},
    Rounding round = exact) {
  const int64_t B = q.size(0), H = q.size(1), Tq = q.size(2), D = q.size(3);
  const int64_t Hkv = k.size(1), Tk = k.size(2);
  const auto Q = values_of(q), K = values_of(k), V = values_of(v);
  AttentionResult r;
  r.out.assign(Q.size(), 0);
  r.grad_q.assign(Q.size(), 0);
  r.grad_k.assign(K.size(), 0);
  r.grad_v.assign(V.size(), 0);
  r.lse.assign(size_t(B * H * Tq), -std::numeric_limits<double>::infinity());
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t h = 0; h < H; ++h) {
      const double* keys = K.data() + (b * Hkv + h / (H / Hkv)) * Tk * D;
      const double* values = V.data() + (b * Hkv + h / (H / Hkv)) * Tk * D;
      double* grad_keys = r.grad_k.data() + (keys - K.data());
      double* grad_values = r.grad_v.data() + (values - V.data());
      for (int64_t i = 0; i < Tq; ++i) {
        if (!mask.computes(b, h, i)) continue;
        const int64_t row = (b * H + h) * Tq + i;
        std::vector<int64_t> seen;
        std::vector<double> score;
        double highest = -std::numeric_limits<double>::infinity();
        for (int64_t j = 0; j < Tk; ++j) {
          if (!mask.sees(b, i, j)) continue;
          double dot = 0;
          for (int64_t d = 0; d < D; ++d) dot += Q[size_t(row * D + d)] * keys[j * D + d];
          seen.push_back(j);
          score.push_back(round(scale * dot));
          highest = std::max(highest, score.back());
        }
        if (seen.empty()) continue;
        double sum = 0;
        for (const double s : score) sum += std::exp(s - highest);
        r.lse[size_t(row)] = highest + std::log(sum);
        double delta = grad_lse.empty() ? 0 : -grad_lse[size_t(row)];
        std::vector<double> weight;
        for (const double s : score) weight.push_back(round(std::exp(s - highest) / sum));
        for (int64_t d = 0; d < D; ++d) {
          double out = 0;
          for (size_t n = 0; n < seen.size(); ++n) out += weight[n] * values[seen[n] * D + d];
          r.out[size_t(row * D + d)] = round(out);
          delta += round(out) * grad_out[size_t(row * D + d)];
        }
        for (size_t n = 0; n < seen.size(); ++n) {
          const int64_t key = seen[n] * D;
          double grad_weight = 0;
          for (int64_t d = 0; d < D; ++d) {
            grad_weight += values[key + d] * grad_out[size_t(row * D + d)];
            grad_values[key + d] += weight[n] * grad_out[size_t(row * D + d)];
          }
          const double grad_score = round(weight[n] * (round(grad_weight) - delta));
          for (int64_t d = 0; d < D; ++d) {
            r.grad_q[size_t(row * D + d)] += scale * grad_score * keys[key + d];
            grad_keys[key + d] += scale * grad_score * Q[size_t(row * D + d)];
          }
        }
      }
    }
  }
  for (auto* grads : {&r.grad_q, &r.grad_k, &r.grad_v}) {
    for (double& value : *grads) value = round(value);
  }
  return r;
}

}  // namespace sluice::testing
