// Routes the tokens of a sequence by hand and lets only the chosen attention run.
#include <cstdio>

#include "ops/linear.h"
#include "ops/routed_attention.h"
#include "ops/routing_index.h"
#include "ops/view.h"

int main() {
  using namespace sluice;
  constexpr int64_t B = 1, T = 256, C = 32, H = 2, D = C / H;

  const Tensor x = randn({B, T, C}, 1);
  const auto heads = [&](uint64_t stream) {  // (B, T, C) -> (B, H, T, D), a view
    const Tensor projected = ops::linear(x, randn({C, C}, 2, stream), {});
    return ops::permute(ops::reshape(projected, {B, T, H, D}), {0, 2, 1, 3});
  };

  // Every eighth token looks at everything, the others at the last 16 tokens.
  const Tensor ids = empty({B, T}, {DType::i32, {}});
  for (int64_t t = 0; t < T; ++t) ids.data<int32_t>()[t] = t % 8 == 0 ? 0 : 2;
  const ops::RoutingIndex index = ops::routing_index(ids, 3);

  ops::RoutedAttentionOptions options;
  options.window = 16;
  const Tensor out = ops::routed_attention(heads(1), heads(2), heads(3), index, options);
  const auto counts = index.counts.to_vector<int32_t>();
  std::printf(
      "%s: %d tokens in full attention, %d in the window\n",
      describe(out).c_str(),
      int(counts[0]),
      int(counts[2]));
  return counts[0] == 32 && counts[2] == 224 ? 0 : 1;
}
