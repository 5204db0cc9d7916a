// Full, window and linear attention of random shapes and options against their equations.
#include <algorithm>

#include <gtest/gtest.h>

#include "engine/context.h"
#include "ops/linear_attention.h"
#include "ops/sliding_window_attention.h"
#include "tests/ops/attention_cases.h"
#include "tests/support/fuzz.h"

namespace sluice {
namespace {

using namespace testing;
using ops::AttentionOptions;

// Multiply-adds of one product; the reference makes about fifty of them per case.
constexpr int64_t kLargestProduct = 1'000'000;

int64_t random_length(Random& random) {
  switch (random.below(8)) {
    case 0:
      return random.between(0, 2);
    case 1:  // around what the kernels cut at: lanes, groups, chunks, blocks
      return std::max<int64_t>(
          0, random.pick({8, 16, 32, 64, 128, 192, 256}) + random.between(-1, 1));
    case 2:
      return random.between(100, 400);
    default:
      return random.between(1, 90);
  }
}

Tensor bytes_where(Random& random, const Shape& shape, double probability) {
  std::vector<uint8_t> values(static_cast<size_t>(shape.numel()));
  for (uint8_t& value : values) value = random.chance(probability) ? 1 : 0;
  return from_values(values, shape);
}

Tensor random_segments(Random& random, int64_t batch, int64_t tokens) {
  const int64_t longest = random.pick({1, 5, 40, 200});
  std::vector<int32_t> ids(static_cast<size_t>(batch * tokens));
  int32_t id = 0;
  int64_t left = 0;
  for (int32_t& value : ids) {
    if (left-- == 0) {
      id = int32_t(random.below(3));
      left = random.between(0, longest);
    }
    value = id;
  }
  return from_values(ids, {batch, tokens});
}

// From 0, rising, to at most `rows`, which is reached half the time.
std::vector<int32_t> random_offsets(Random& random, int64_t sequences, int64_t rows) {
  std::vector<int32_t> offsets{0};
  for (int64_t s = 0; s < sequences; ++s) offsets.push_back(int32_t(random.between(0, rows)));
  if (random.chance(0.5)) offsets.back() = int32_t(rows);
  std::sort(offsets.begin(), offsets.end());
  return offsets;
}

std::vector<int32_t> random_lengths(Random& random, int64_t batch, int64_t rows) {
  std::vector<int32_t> lengths;
  for (int64_t b = 0; b < batch; ++b) {
    lengths.push_back(int32_t(random.chance(0.3) ? rows : random.between(0, rows)));
  }
  return lengths;
}

// Single queries with gaps, or runs of them.
ops::QueryList random_queries(Random& random, const std::vector<int64_t>& queries) {
  std::vector<int32_t> positions, offsets{0};
  for (const int64_t count : queries) {
    const double change = random.pick({0.03, 0.3, 0.6});
    bool listed = random.chance(0.5);
    for (int64_t t = 0; t < count; ++t) {
      if (random.chance(change)) listed = !listed;
      if (listed) positions.push_back(int32_t(t));
    }
    offsets.push_back(int32_t(positions.size()));
  }
  return {ints(positions), ints(offsets)};
}

Tensor random_live_heads(Random& random, int64_t sequences, int64_t heads) {
  std::vector<int32_t> pairs;
  const double probability = random.pick({0.2, 0.7});
  for (int64_t s = 0; s < sequences; ++s) {
    for (int64_t h = 0; h < heads; ++h) {
      if (random.chance(probability)) pairs.insert(pairs.end(), {int32_t(s), int32_t(h)});
    }
  }
  return from_values(pairs, {int64_t(pairs.size()) / 2, 2});
}

AttentionCase random_case(Random& random) {
  AttentionCase c{"random", 1, 1, 1, 0, 0, 0};
  c.seed = random.bits();
  c.B = random.pick({1, 1, 2, 3});
  c.Hkv = random.pick({1, 2, 3});
  c.H = c.Hkv * random.pick({1, 1, 2, 4});
  c.D = random.chance(0.5) ? random.pick({1, 8, 16, 31, 32, 33, 64, 128, 256})
                           : random.between(1, 256);
  c.Tq = random_length(random);
  c.Tk = random.chance(0.5) ? c.Tq : random_length(random);
  while (c.B * c.H * c.Tq * c.Tk * c.D > kLargestProduct) {
    if (c.H > c.Hkv || c.Hkv > 1) {
      c.H /= c.Hkv > 1 ? c.Hkv : 2;
      c.Hkv = 1;
    } else if (c.B > 1) {
      c.B = 1;
    } else if (c.D > 40) {
      c.D /= 2;
    } else {
      c.Tq = c.Tq * 2 / 3;
      c.Tk = c.Tk * 2 / 3;
    }
  }
  AttentionOptions& o = c.options;
  o.causal = random.chance(0.6);
  if (random.chance(0.3)) o.scale = random.pick({0.1, 0.7, 1.3}) / std::sqrt(double(c.D));
  std::vector<int64_t> queries(size_t(c.B), c.Tq);  // by sequence
  if (c.B == 1 && random.chance(0.4)) {
    const int64_t sequences = random.between(1, 5);
    const auto query_offsets = random_offsets(random, sequences, c.Tq);
    o.query_offsets = ints(query_offsets);
    o.key_offsets = ints(random_offsets(random, sequences, c.Tk));
    queries.clear();
    for (size_t s = 0; s + 1 < query_offsets.size(); ++s) {
      queries.push_back(query_offsets[s + 1] - query_offsets[s]);
    }
  } else {
    if (random.chance(0.3)) {
      const auto lengths = random_lengths(random, c.B, c.Tq);
      queries.assign(lengths.begin(), lengths.end());
      o.query_lengths = ints(lengths);
    }
    if (random.chance(0.3)) o.key_lengths = ints(random_lengths(random, c.B, c.Tk));
  }
  if (random.chance(0.35)) o.segments = random_segments(random, c.B, c.Tk);
  if (random.chance(0.35)) o.keep = bytes_where(random, {c.B, c.Tk}, random.pick({0.2, 0.9}));
  if (random.chance(0.3)) o.live_heads = random_live_heads(random, int64_t(queries.size()), c.H);
  if (random.chance(0.4)) o.queries = random_queries(random, queries);
  return c;
}

std::string describe(const AttentionCase& c, int64_t window) {
  const AttentionOptions& o = c.options;
  std::string text = "B " + std::to_string(c.B) + " H " + std::to_string(c.H) + " Hkv " +
                     std::to_string(c.Hkv) + " Tq " + std::to_string(c.Tq) + " Tk " +
                     std::to_string(c.Tk) + " D " + std::to_string(c.D) + " window " +
                     std::to_string(window) + (o.causal ? " causal" : "");
  const auto add = [&](const char* name, const Tensor& tensor) {
    if (tensor.defined()) text += std::string(" ") + name;
  };
  add("segments", o.segments);
  add("keep", o.keep);
  add("query_lengths", o.query_lengths);
  add("key_lengths", o.key_lengths);
  add("packed", o.query_offsets);
  add("live_heads", o.live_heads);
  add("queries", o.queries.positions);
  return text;
}

// The bf16 rule takes the worst row of a naive version for its measure; where few rows sum anything
// that row may be right by luck.
bool fit_for_bf16(const AttentionCase& c, int64_t window) {
  constexpr int kRows = 64;
  const AttentionMask mask = c.mask(window);
  int rows = 0;
  for (int64_t row = 0; row < c.B * c.H * c.Tq && rows < kRows; ++row) {
    const int64_t b = row / (c.H * c.Tq), i = row % c.Tq;
    if (!mask.computes(b, row / c.Tq % c.H, i)) continue;
    int seen = 0;
    for (int64_t j = 0; j < c.Tk && seen < 3; ++j) seen += mask.sees(b, i, j) ? 1 : 0;
    rows += seen == 3 ? 1 : 0;
  }
  return c.D >= 4 && rows == kRows;
}

void expect_right(
    const AttentionCase& c,
    const AttentionFunction& op,
    const AttentionEquations& equations,
    int64_t window) {
  const size_t dtypes = fit_for_bf16(c, window) ? 3 : 2;
  const int64_t summands = c.Tk + c.Tq * (c.H / c.Hkv) + c.D;
  expect_matches(c, op, equations, std::span(kAttentionDTypes).first(dtypes), summands);
}

using GatedFunction =
    std::function<Tensor(const Tensor&, const Tensor&, const Tensor&, const AttentionOptions&)>;

/// `heads` (B, H, T, D) times gate (B, H), rounded once.
Tensor scaled(const Tensor& heads, const std::vector<double>& gate) {
  std::vector<double> values = values_of(heads);
  const size_t rows = gate.empty() ? 1 : values.size() / gate.size();
  for (size_t i = 0; i < values.size(); ++i) values[i] *= gate[i / rows];
  return to_dtype(from_values(values, heads.shape()), heads.dtype());
}

/// A gate multiplies the output, hence the gradient that comes back through it.
void expect_gate_scales(const AttentionCase& c, const GatedFunction& op, Random& random) {
  const DType dtype = random.pick(std::span(kAttentionDTypes));
  const AttentionInputs in = inputs_of(c, dtype, dtype);
  const bool per_entry = random.chance(0.5);
  const Shape shape = per_entry ? Shape{c.B, c.H} : Shape{c.H};
  const Tensor gate = autograd::set_requires_grad(randn(shape, c.seed, 5, {dtype, {}}));
  const std::vector<double> gates = values_of(gate);
  std::vector<double> factor;
  for (size_t i = 0; i < size_t(c.B * c.H); ++i) factor.push_back(gates[i % gates.size()]);
  const auto run = [&](const AttentionOptions& options, const Tensor& grad_out) {
    return run_attention(
        [&](const Tensor& q, const Tensor& k, const Tensor& v) {
          return ops::AttentionOutput{op(q, k, v, options), Tensor()};
        },
        {in.q, in.k, in.v, grad_out, Tensor()});
  };
  AttentionOptions gated = c.options;
  gated.head_gate = gate;
  const AttentionRun with = run(gated, in.grad_out);
  AttentionRun without = run(c.options, scaled(in.grad_out, factor));
  const auto out = values_of(without.out), grad_out = values_of(in.grad_out);
  without.out = scaled(without.out, factor);
  expect_same_bits(with, without, "gated");
  if (dtype == DType::bf16) return;  // its sums are tested with the operation that makes them
  std::vector<double> grad(size_t(shape.numel()), 0.0);
  const size_t rows = out.empty() ? 1 : out.size() / factor.size();
  for (size_t i = 0; i < out.size(); ++i) grad[i / rows % grad.size()] += out[i] * grad_out[i];
  EXPECT_TRUE(near(
      autograd::grad(gate), grad, tolerance_for(dtype, c.B * c.Tq * c.D), "gradient of the gate"));
}

TEST(AttentionFuzz, RandomCasesMatchTheirEquations) {
  for_each_fuzz_case(1000, [](Random& random) {
    const AttentionCase c = random_case(random);
    const int64_t window =
        random.chance(0.5) ? random.between(1, 40) : random.between(1, c.Tq + c.Tk + 1);
    SCOPED_TRACE(describe(c, window));
    ThreadPool pool(int(random.between(1, 3)));
    CpuContext context{pool};
    const ContextScope scope(context);
    const GatedFunction full = [](const auto& q, const auto& k, const auto& v, const auto& o) {
      return ops::attention(q, k, v, o);
    };
    const GatedFunction near_keys =
        [=](const auto& q, const auto& k, const auto& v, const auto& o) {
          return ops::sliding_window_attention(q, k, v, {o, window});
        };
    const GatedFunction linear = [](const auto& q, const auto& k, const auto& v, const auto& o) {
      return ops::linear_attention(q, k, v, o);
    };
    const auto without_lse = [&](const GatedFunction& op) -> AttentionFunction {
      return [&](const Tensor& q, const Tensor& k, const Tensor& v) {
        return ops::AttentionOutput{op(q, k, v, c.options), Tensor()};
      };
    };
    {
      SCOPED_TRACE("full");
      const auto with_lse = [&](const Tensor& q, const Tensor& k, const Tensor& v) {
        return ops::attention_with_lse(q, k, v, c.options);
      };
      expect_right(c, with_lse, softmax_equations(c), 0);
    }
    {
      SCOPED_TRACE("window");
      expect_right(c, without_lse(near_keys), softmax_equations(c, window), window);
    }
    {
      SCOPED_TRACE("linear");
      expect_right(c, without_lse(linear), linear_equations(c), 0);
    }
    SCOPED_TRACE("gate");
    expect_gate_scales(c, random.pick({full, near_keys, linear}), random);
  });
}

}  // namespace
}  // namespace sluice
