#include "models/cost_model.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <vector>

#include "autograd/autograd.h"
#include "engine/context.h"
#include "models/median.h"
#include "models/routes.h"
#include "ops/routed_attention.h"
#include "ops/routing_index.h"
#include "ops/view.h"

namespace sluice {
namespace {

// `share` of the tokens to `expert`, the rest dropped; in runs of 64 when clustered.
Tensor sample_routes(
    int64_t batch, int64_t tokens, Expert expert, double share, bool clustered, uint64_t stream) {
  const Tensor draws = rand({batch, clustered ? (tokens + 63) / 64 : tokens}, 1, stream);
  const Tensor ids = empty({batch, tokens}, {DType::i32, {}});
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const int64_t t = i % tokens;
    const int64_t draw = i / tokens * draws.size(1) + (clustered ? t / 64 : t);
    ids.data<int32_t>()[i] = double(draws.data<float>()[draw]) < share ? int32_t(expert) : -1;
  }
  return ids;
}

}  // namespace

CostLine fit_line(std::span<const CostSample> samples) {
  double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
  for (const CostSample& s : samples) {
    const double weight = 1.0 / (s.milliseconds * s.milliseconds);
    w += weight;
    wx += weight * s.work;
    wy += weight * s.milliseconds;
    wxx += weight * s.work * s.work;
    wxy += weight * s.work * s.milliseconds;
  }
  const double determinant = w * wxx - wx * wx;
  const double slope = determinant > 0 ? (w * wxy - wx * wy) / determinant : 0;
  const double base = (wy - slope * wx) / w;
  if (base < 0) return {0, wxy / wxx};
  if (slope < 0) return {wy / w, 0};
  return {base, slope};
}

std::array<double, kExperts> route_work(const Tensor& ids, int64_t window) {
  std::array<double, kExperts> work{};
  const int64_t B = ids.size(0);
  const int64_t T = ids.size(1);
  const Tensor dense = to_contiguous(ids);
  for (int64_t b = 0; b < B; ++b) {
    const int32_t* row = dense.data<int32_t>() + b * T;
    for (int k = 0; k < kExperts; ++k) {
      int64_t in_tile = 0;
      int64_t first = 0;
      int64_t last = 0;
      auto close_tile = [&] {
        if (in_tile == 0) return;
        if (k == int(Expert::full))
          work[size_t(k)] += double(last + 1);
        else if (k == int(Expert::window))
          work[size_t(k)] += double(last - first + window);
        else
          work[size_t(k)] += double(in_tile);
        in_tile = 0;
      };
      for (int64_t t = 0; t < T; ++t) {
        if (row[t] != k) continue;
        if (in_tile == 0) first = t;
        last = t;
        if (++in_tile == AttentionCostModel::kTile) close_tile();
      }
      close_tile();
    }
  }
  return work;
}

std::array<double, kExperts> AttentionCostModel::predict(const Tensor& ids, int64_t window) const {
  const auto work = route_work(ids, window);
  std::array<double, kExperts> milliseconds{};
  for (size_t k = 0; k < kExperts; ++k) {
    if (work[k] == 0) continue;
    const double fixed = k == size_t(Expert::linear) ? base[k] * double(ids.numel()) : base[k];
    milliseconds[k] = fixed + slope[k] * work[k];
  }
  return milliseconds;
}

AttentionCostModel measure_costs(const MetaAttentionConfig& config, int64_t batch, int64_t tokens) {
  const autograd::NoGrad no_grad;
  const int64_t D = config.head_width();
  // (B, T, H, D) memory seen as (B, H, T, D), as the model's projections leave it.
  auto heads = [&](int64_t count, uint64_t stream) {
    return ops::permute(randn({batch, tokens, count, D}, 1, stream), {0, 2, 1, 3});
  };
  const Tensor q = heads(config.heads, 1);
  const Tensor k = heads(config.kv_heads, 2);
  const Tensor v = heads(config.kv_heads, 3);
  ops::RoutedAttentionOptions options;
  options.window = config.window;

  AttentionCostModel model;
  model.threads = num_threads();
  uint64_t stream = 10;
  for (int expert = 0; expert < kExperts; ++expert) {
    std::vector<CostSample> samples;
    for (const auto& [share, clustered] :
         {std::pair(1.0, false), {0.5, false}, {0.25, false}, {0.08, false}, {0.25, true}}) {
      const Tensor ids = sample_routes(batch, tokens, Expert(expert), share, clustered, stream++);
      const double work = route_work(ids, config.window)[size_t(expert)];
      if (work == 0) continue;
      std::vector<double> times;
      for (int repeat = 0; repeat < 6; ++repeat) {
        const auto start = std::chrono::steady_clock::now();
        const auto index = ops::routing_index(ids, kExperts);
        (void)ops::routed_attention(q, k, v, index, options);
        const auto elapsed = std::chrono::steady_clock::now() - start;
        if (repeat > 0) times.push_back(std::chrono::duration<double, std::milli>(elapsed).count());
      }
      samples.push_back({work, median(std::move(times))});
    }
    if (samples.empty()) continue;
    const auto [base, slope] = fit_line(samples);
    model.base[size_t(expert)] =
        expert == int(Expert::linear) ? base / double(batch * tokens) : base;
    model.slope[size_t(expert)] = slope;
  }
  return model;
}

nlohmann::json to_json(const AttentionCostModel& model) {
  return {
      {"base_ms", model.base},
      {"slope_ms", model.slope},
      {"tile", AttentionCostModel::kTile},
      {"threads", model.threads}};
}

}  // namespace sluice
