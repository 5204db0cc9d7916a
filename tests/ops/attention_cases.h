// The shapes and options that every attention op is tested with, and one run of an op on them.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "autograd/autograd.h"
#include "engine/philox.h"
#include "ops/attention.h"
#include "ops/head_layout.h"
#include "tests/reference/attention.h"
#include "tests/reference/linear_attention.h"

namespace sluice::testing {

struct AttentionCase {
  std::string name;
  int64_t B, H, Hkv, Tq, Tk, D;
  ops::AttentionOptions options = {};
  uint64_t seed = 11;  // of the inputs

  AttentionMask mask(int64_t window = 0) const { return {Tq, Tk, options, window}; }
  double scale() const { return options.scale.value_or(1 / std::sqrt(double(D))); }
};

inline Tensor ints(std::vector<int32_t> values) {
  const auto count = int64_t(values.size());
  return from_values(values, {count});
}

/// Runs of equal ids, of lengths 1, 2, 3, .. from a start that differs by batch entry.
inline Tensor some_segments(int64_t batch, int64_t tokens) {
  std::vector<int32_t> ids;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t t = 0, length = 3 + 20 * b, id = 5; t < tokens; ++id, ++length) {
      for (int64_t n = 0; n < length && t < tokens; ++n, ++t) ids.push_back(int32_t(id % 3));
    }
  }
  return from_values(ids, {batch, tokens});
}

/// Every token but some in the second third and a run of 40 at the end: the first key block is
/// whole, so a masked query must be told from its neighbours there.
inline Tensor some_keep(int64_t batch, int64_t tokens) {
  std::vector<uint8_t> keep;
  for (int64_t i = 0; i < batch * tokens; ++i) {
    const int64_t t = i % tokens;
    keep.push_back(
        !(t % 3 == 1 && t >= tokens / 3 && t < tokens / 2) &&
        t < std::max(tokens - 40, tokens / 2));
  }
  return from_values(keep, {batch, tokens});
}

/// About a third of the queries, clustered and single ones; none of the last sequence.
inline ops::QueryList some_queries(const std::vector<int64_t>& queries) {
  std::vector<int32_t> positions, offsets{0};
  for (size_t s = 0; s < queries.size(); ++s) {
    for (int64_t t = 0; t < queries[s] && s + 1 < std::max<size_t>(2, queries.size()); ++t) {
      if (t % 90 < 25 || t % 7 == int64_t(s)) positions.push_back(int32_t(t));
    }
    offsets.push_back(int32_t(positions.size()));
  }
  return {ints(positions), ints(offsets)};
}

inline std::vector<AttentionCase> attention_cases() {
  std::vector<AttentionCase> cases{
      {"one token", 1, 2, 1, 1, 1, 4},
      {"below a tile", 2, 3, 3, 19, 19, 5},
      {"whole tiles", 1, 2, 2, 128, 128, 16},
      {"ragged tiles", 2, 4, 2, 203, 203, 32},
      {"sets of tiles", 1, 1, 1, 600, 600, 8},
      {"heads that share keys", 1, 6, 1, 130, 130, 24},
      {"widest head", 1, 1, 1, 70, 70, 256},
      {"narrowest head", 1, 2, 1, 70, 70, 1},
      {"fewer queries", 2, 2, 1, 37, 210, 20},
      {"fewer keys", 2, 2, 2, 210, 37, 17},
      {"no query", 2, 2, 2, 0, 9, 8},
      {"no key", 2, 2, 2, 9, 0, 8},
      {"no batch", 0, 2, 2, 9, 9, 8},
  };
  const auto add = [&](AttentionCase c, auto&& change) {
    change(c.options);
    cases.push_back(std::move(c));
  };
  add({"not causal", 2, 2, 1, 150, 150, 16}, [](auto& o) { o.causal = false; });
  add({"not causal, fewer keys", 1, 2, 2, 150, 70, 16}, [](auto& o) { o.causal = false; });
  add({"scale", 1, 2, 2, 40, 40, 16}, [](auto& o) { o.scale = 1.5; });
  for (const bool causal : {true, false}) {
    const std::string how = causal ? ", causal" : ", not causal";
    add({"segments" + how, 2, 2, 1, 203, 203, 16}, [&](auto& o) {
      o.causal = causal;
      o.segments = some_segments(2, 203);
    });
    add({"segments, fewer queries" + how, 1, 2, 2, 100, 203, 16}, [&](auto& o) {
      o.causal = causal;
      o.segments = some_segments(1, 203);
    });
    add({"segments, fewer keys" + how, 1, 2, 2, 203, 100, 16}, [&](auto& o) {
      o.causal = causal;
      o.segments = some_segments(1, 100);
    });
    add({"lengths" + how, 3, 2, 1, 80, 150, 16}, [&](auto& o) {
      o.causal = causal;
      o.query_lengths = ints({80, 0, 71});
      o.key_lengths = ints({150, 33, 40});
    });
    add({"packed" + how, 1, 4, 2, 210, 230, 16}, [&](auto& o) {
      o.causal = causal;
      o.query_offsets = ints({0, 0, 76, 77, 200});
      o.key_offsets = ints({0, 1, 70, 70, 220});
    });
    add({"keep" + how, 2, 2, 1, 203, 203, 16}, [&](auto& o) {
      o.causal = causal;
      o.keep = some_keep(2, 203);
    });
  }
  add({"live heads", 3, 4, 2, 80, 80, 16}, [](auto& o) {
    o.live_heads = from_values(std::vector<int32_t>{0, 1, 2, 0, 2, 1, 2, 3}, {4, 2});
  });
  add({"no live head", 1, 2, 2, 80, 80, 16}, [](auto& o) {
    o.live_heads = empty({0, 2}, {DType::i32, {}});
  });
  add({"query list", 3, 2, 1, 203, 203, 16}, [](auto& o) {
    o.queries = some_queries({203, 203, 203});
  });
  add({"empty query list", 1, 2, 1, 80, 80, 16}, [](auto& o) {
    o.queries = {ints({}), ints({0, 0})};
  });
  add({"everything at once", 1, 4, 2, 230, 300, 16}, [](auto& o) {
    o.query_offsets = ints({0, 100, 180, 220});
    o.key_offsets = ints({0, 150, 210, 290});
    o.segments = some_segments(1, 300);
    o.keep = some_keep(1, 300);
    o.live_heads = from_values(std::vector<int32_t>{0, 0, 0, 3, 1, 2}, {3, 2});
    o.queries = some_queries({100, 80, 40});
  });
  return cases;
}

/// Random (B, H, T, D) as a view with odd strides into larger memory, at an odd address.
inline Tensor strided_heads(const Shape& shape, PhiloxKey key, DType dtype, DType rounding) {
  const int64_t H = shape[1], T = shape[2], D = shape[3];
  const int64_t row = H * D + 3;
  const Tensor memory = randn({shape[0] * T * row + 1}, key.seed, key.stream, {DType::f64, {}});
  const Tensor typed = to_dtype(to_dtype(memory, rounding), dtype);
  return typed.alias(shape, {T * row, D, row, 1}, 1);
}

struct AttentionInputs {
  Tensor q, k, v, grad_out, grad_lse;
};

inline AttentionInputs inputs_of(const AttentionCase& c, DType dtype, DType rounding) {
  const DType sums = dtype == DType::f64 ? DType::f64 : DType::f32;
  return {
      strided_heads({c.B, c.H, c.Tq, c.D}, {c.seed, 0}, dtype, rounding),
      strided_heads({c.B, c.Hkv, c.Tk, c.D}, {c.seed, 1}, dtype, rounding),
      strided_heads({c.B, c.Hkv, c.Tk, c.D}, {c.seed, 2}, dtype, rounding),
      strided_heads({c.B, c.H, c.Tq, c.D}, {c.seed, 3}, dtype, rounding),
      randn({c.B, c.H, c.Tq}, c.seed, 4, {sums, {}})};
}

struct AttentionRun {
  Tensor out, lse, grad_q, grad_k, grad_v;
};

/// `op` maps (q, k, v) to out and, or undefined, lse; both get the gradients of `in`.
using AttentionFunction =
    std::function<ops::AttentionOutput(const Tensor& q, const Tensor& k, const Tensor& v)>;
inline AttentionRun run_attention(const AttentionFunction& op, const AttentionInputs& in) {
  const Tensor q = autograd::set_requires_grad(in.q.detach());
  const Tensor k = autograd::set_requires_grad(in.k.detach());
  const Tensor v = autograd::set_requires_grad(in.v.detach());
  const ops::AttentionOutput result = op(q, k, v);
  autograd::backward(result.out, in.grad_out, {.retain_graph = true});
  if (result.lse.defined()) autograd::backward(result.lse, in.grad_lse);
  return {result.out, result.lse, autograd::grad(q), autograd::grad(k), autograd::grad(v)};
}

/// What the equations give for f64 inputs, `round` applied to what a naive version would store.
using AttentionEquations = std::function<AttentionResult(
    const AttentionInputs& in, const std::vector<double>& grad_lse, Rounding round)>;

/// Outputs and gradients of `op` in each dtype against `equations`. `summands` bounds the sums.
inline void expect_matches(
    const AttentionCase& c,
    const AttentionFunction& op,
    const AttentionEquations& equations,
    std::span<const DType> dtypes,
    int64_t summands) {
  for (const DType dtype : dtypes) {
    const AttentionRun run = run_attention(op, inputs_of(c, dtype, dtype));
    const AttentionInputs in = inputs_of(c, DType::f64, dtype);
    const auto grad_lse = run.lse.defined() ? values_of(in.grad_lse) : std::vector<double>();
    const AttentionResult truth = equations(in, grad_lse, exact);
    if (dtype == DType::bf16) {
      const AttentionResult naive = equations(in, grad_lse, to_bf16);
      const auto compare = [&](const Tensor& actual, const auto& expected, const auto& rounded) {
        EXPECT_TRUE(bf16_rows(
            actual, expected, to_dtype(from_values(rounded, actual.shape()), dtype), c.name));
      };
      compare(run.out, truth.out, naive.out);
      compare(run.grad_q, truth.grad_q, naive.grad_q);
      compare(run.grad_k, truth.grad_k, naive.grad_k);
      compare(run.grad_v, truth.grad_v, naive.grad_v);
      continue;
    }
    const Tolerance tolerance = tolerance_for(dtype, summands);
    EXPECT_TRUE(near(run.out, truth.out, tolerance, c.name + ": out"));
    if (run.lse.defined()) {
      EXPECT_TRUE(near(run.lse, truth.lse, tolerance, c.name + ": lse"));
    }
    EXPECT_TRUE(near(run.grad_q, truth.grad_q, tolerance, c.name + ": grad_q"));
    EXPECT_TRUE(near(run.grad_k, truth.grad_k, tolerance, c.name + ": grad_k"));
    EXPECT_TRUE(near(run.grad_v, truth.grad_v, tolerance, c.name + ": grad_v"));
  }
}

inline constexpr DType kAttentionDTypes[] = {DType::f64, DType::f32, DType::bf16};

inline AttentionEquations softmax_equations(const AttentionCase& c, int64_t window = 0) {
  return [&c, window](const AttentionInputs& in, const auto& grad_lse, Rounding round) {
    return reference_attention(
        in.q, in.k, in.v, c.mask(window), c.scale(), values_of(in.grad_out), grad_lse, round);
  };
}

inline AttentionEquations linear_equations(const AttentionCase& c) {
  return [&c](const AttentionInputs& in, const auto&, Rounding round) {
    return reference_linear_attention(in.q, in.k, in.v, c.mask(), values_of(in.grad_out), round);
  };
}

/// Full attention, or with a window, in f64, f32 and bf16.
inline void expect_matches_reference(
    const AttentionCase& c, const AttentionFunction& op, int64_t window = 0) {
  expect_matches(c, op, softmax_equations(c, window), kAttentionDTypes, c.Tk);
}

/// The same bits, pair by pair.
inline void expect_same_bits(
    const AttentionRun& a, const AttentionRun& b, const std::string& what) {
  EXPECT_TRUE(bit_equal(a.out, b.out, what + ": out"));
  if (a.lse.defined()) {
    EXPECT_TRUE(bit_equal(a.lse, b.lse, what + ": lse"));
  }
  EXPECT_TRUE(bit_equal(a.grad_q, b.grad_q, what + ": grad_q"));
  EXPECT_TRUE(bit_equal(a.grad_k, b.grad_k, what + ": grad_k"));
  EXPECT_TRUE(bit_equal(a.grad_v, b.grad_v, what + ": grad_v"));
}

}  // namespace sluice::testing
