// Does a routed token save time? All-full attention beside hard-routed attention with a share of
// random positions in full attention and the rest in linear or window attention; routing index
// included, forward and forward plus backward, f32.
//
//   ./build/bench/routed_attention_bench --benchmark_repetitions=5
//
// Compare medians of one run: `full/2048` against `routed_linear/2048/25`.
#include <benchmark/benchmark.h>

#include "autograd/autograd.h"
#include "ops/attention.h"
#include "ops/routed_attention.h"
#include "ops/routing_index.h"
#include "ops/view.h"

namespace sluice {
namespace {

constexpr int64_t kBatch = 2;
constexpr int64_t kHeads = 4;
constexpr int64_t kHeadSize = 32;
constexpr int64_t kWindow = 32;
constexpr int kExperts = 3;

struct Inputs {
  Tensor q, k, v, grad;
};

Inputs make_inputs(int64_t tokens) {
  // (B, T, H, D) memory seen as (B, H, T, D), as a model's projections leave it.
  auto heads = [&](uint64_t stream) {
    return randn({kBatch, tokens, kHeads, kHeadSize}, 1, stream)
        .alias(
            {kBatch, kHeads, tokens, kHeadSize},
            {tokens * kHeads * kHeadSize, kHeadSize, kHeads * kHeadSize, 1},
            0);
  };
  return {heads(1), heads(2), heads(3), heads(4)};
}

// `percent` of the tokens at random to full attention, the others to `rest`.
Tensor random_routes(int64_t tokens, int64_t percent, int rest) {
  const Tensor draws = rand({kBatch, tokens}, 2);
  const Tensor ids = empty({kBatch, tokens}, {DType::i32, {}});
  for (int64_t i = 0; i < ids.numel(); ++i) {
    ids.data<int32_t>()[i] = draws.data<float>()[i] * 100 < float(percent) ? 0 : rest;
  }
  return ids;
}

template <class Attend>
void measure(benchmark::State& state, bool backward, Attend&& attend) {
  const Inputs inputs = make_inputs(state.range(0));
  for (auto _ : state) {
    if (!backward) {
      const autograd::NoGrad no_grad;
      benchmark::DoNotOptimize(attend(inputs.q, inputs.k, inputs.v).raw());
      continue;
    }
    const Tensor q = autograd::set_requires_grad(inputs.q.detach());
    const Tensor k = autograd::set_requires_grad(inputs.k.detach());
    const Tensor v = autograd::set_requires_grad(inputs.v.detach());
    autograd::backward(attend(q, k, v), inputs.grad);
  }
  state.SetItemsProcessed(state.iterations() * kBatch * state.range(0));
}

void full(benchmark::State& state, bool backward) {
  measure(state, backward, [](const Tensor& q, const Tensor& k, const Tensor& v) {
    return ops::attention(q, k, v);
  });
}

void routed(benchmark::State& state, int rest, bool backward) {
  const Tensor ids = random_routes(state.range(0), state.range(1), rest);
  ops::RoutedAttentionOptions options;
  options.window = kWindow;
  measure(state, backward, [&](const Tensor& q, const Tensor& k, const Tensor& v) {
    return ops::routed_attention(q, k, v, ops::routing_index(ids, kExperts), options);
  });
}

void shares(benchmark::internal::Benchmark* bench) {
  for (const int64_t tokens : {1024, 2048}) {
    for (const int64_t percent : {0, 5, 15, 25, 50, 100}) bench->Args({tokens, percent});
  }
  bench->UseRealTime()->Unit(benchmark::kMillisecond);
}

void lengths(benchmark::internal::Benchmark* bench) {
  bench->Arg(1024)->Arg(2048)->UseRealTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK_CAPTURE(full, forward, false)->Apply(lengths);
BENCHMARK_CAPTURE(full, forward_backward, true)->Apply(lengths);
BENCHMARK_CAPTURE(routed, linear_forward, 1, false)->Apply(shares);
BENCHMARK_CAPTURE(routed, linear_forward_backward, 1, true)->Apply(shares);
BENCHMARK_CAPTURE(routed, window_forward, 2, false)->Apply(shares);
BENCHMARK_CAPTURE(routed, window_forward_backward, 2, true)->Apply(shares);

}  // namespace
}  // namespace sluice
