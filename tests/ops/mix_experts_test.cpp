#include "ops/mix_experts.h"

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "ops/binary.h"
#include "ops/cast.h"
#include "ops/view.h"
#include "tests/support/compare.h"
#include "tests/support/dtype_sweep.h"
#include "tests/support/strided.h"

namespace sluice::testing {
namespace {

struct Case {
  int64_t B, T, C;
  int E;
};
const std::vector<Case> kCases = {
    {1, 1, 1, 1},
    {1, 1, 5, 3},
    {2, 3, 64, 3},
    {2, 7, 203, 3},
    {1, 4, 16, 9},
    {3, 0, 8, 2},
    {2, 3, 0, 2}};

// weights, outputs[0], .., outputs[E-1]
std::vector<Tensor> inputs_of(const Case& c) {
  std::vector<Tensor> inputs = {normal({c.B, c.T, c.E})};
  for (int e = 0; e < c.E; ++e) inputs.push_back(normal({c.B, c.T, c.C}, uint64_t(e) + 1));
  return inputs;
}

std::vector<Tensor> mix(const std::vector<Tensor>& x) {
  return {ops::mix_experts(x[0], {x.begin() + 1, x.end()})};
}

TEST(MixExperts, MatchesTheFormula) {
  for (const Case& c : kCases) {
    auto x = inputs_of(c);
    std::vector<double> expected(size_t(c.B * c.T * c.C));
    for (int e = 0; e < c.E; ++e) {
      const auto weights = x[0].to_vector<double>();
      const auto output = x[size_t(e) + 1].to_vector<double>();
      for (size_t i = 0; i < expected.size(); ++i) {
        expected[i] += weights[i / size_t(c.C) * size_t(c.E) + size_t(e)] * output[i];
      }
    }
    const Tensor out = mix(x)[0];
    EXPECT_EQ(out.shape(), (Shape{c.B, c.T, c.C}));
    EXPECT_TRUE(near(out, expected, tolerance_for(DType::f64, c.E)));
    for (Tensor& input : x) input = strided(input);
    EXPECT_TRUE(bit_equal(mix(x)[0], out, "strided"));
  }
}

TEST(MixExperts, Gradients) {
  for (const Case& c : kCases) EXPECT_TRUE(gradcheck_passes(mix, inputs_of(c))) << c.C;
}

TEST(MixExperts, F32AndBf16AgreeWithF64) {
  for (const Case& c : kCases) expect_dtypes_agree(mix, inputs_of(c), std::max<int64_t>(c.C, c.E));
}

// The router computes in f32 whatever the experts do; its gradient must not be rounded to bf16.
TEST(MixExperts, F32WeightsBesideBf16Outputs) {
  const Case c{2, 5, 130, 3};
  auto inputs = inputs_of(c);
  for (size_t e = 1; e < inputs.size(); ++e)
    inputs[e] = to_dtype(to_dtype(inputs[e], DType::bf16), DType::f64);
  const auto truth = run_with_grads(mix, inputs, DType::f64, DType::f64);
  std::vector<Tensor> leaves = {autograd::set_requires_grad(to_dtype(inputs[0], DType::f32))};
  for (size_t e = 1; e < inputs.size(); ++e) {
    leaves.push_back(autograd::set_requires_grad(to_dtype(inputs[e], DType::bf16)));
  }
  const Tensor out = mix(leaves)[0];
  EXPECT_EQ(out.dtype(), DType::bf16);
  const Tensor rounded = to_dtype(truth.outputs[0], DType::bf16);
  EXPECT_TRUE(bf16_rows(out, values_of(truth.outputs[0]), rounded));
  // A gradient of ones is exact in bf16: what remains is the f32 sum over C.
  autograd::backward(out, full(out.shape(), 1, {DType::bf16, {}}));
  const Tensor grad = autograd::grad(leaves[0]);
  EXPECT_EQ(grad.dtype(), DType::f32);
  std::vector<double> expected(size_t(c.B * c.T * c.E));
  for (int e = 0; e < c.E; ++e) {
    const auto output = inputs[size_t(e) + 1].to_vector<double>();
    for (size_t i = 0; i < output.size(); ++i) {
      expected[i / size_t(c.C) * size_t(c.E) + size_t(e)] += output[i];
    }
  }
  EXPECT_TRUE(near(grad, expected, tolerance_for(DType::f32, c.C)));
}

TEST(MixExperts, SkipsWhatIsNotNeeded) {
  const auto x = inputs_of({2, 3, 8, 3});
  const Tensor only_weights =
      ops::mix_experts(autograd::set_requires_grad(clone(x[0])), {x[1], x[2], x[3]});
  autograd::backward(only_weights, normal({2, 3, 8}, 9));
  const Tensor leaf = autograd::set_requires_grad(clone(x[2]));
  const Tensor only_one = ops::mix_experts(x[0], {x[1], leaf, x[3]});
  // Without a gradient for the weights the outputs are not kept alive.
  EXPECT_EQ(autograd::graph_report(only_one)[0].saved_bytes, size_t(x[0].numel()) * 8);
  const Tensor grad = normal({2, 3, 8}, 9);
  autograd::backward(only_one, grad);
  EXPECT_TRUE(near(
      autograd::grad(leaf), ops::mul(grad, ops::slice(x[0], 2, 1, 2)), tolerance_for(DType::f64)));
}

// A one-hot weight hands the chosen expert's bits through.
TEST(MixExperts, OneHotWeightsSelect) {
  const auto x = inputs_of({2, 3, 37, 3});
  const Tensor one_hot = zeros({2, 3, 3}, {DType::f64, {}});
  fill(ops::select(one_hot, 2, 1), 1);
  EXPECT_TRUE(bit_equal(ops::mix_experts(one_hot, {x[1], x[2], x[3]}), x[2]));
}

TEST(MixExperts, SameBitsForAnyThreads) {
  expect_same_bits_for_any_threads(mix, inputs_of({4, 65, 129, 3}));
}

TEST(MixExperts, Throws) {
  const Tensor w = zeros({2, 3, 2}), y = zeros({2, 3, 8});
  SLUICE_EXPECT_THROW(ops::mix_experts(w, {}), ArgumentError, "one tensor per expert, got none");
  SLUICE_EXPECT_THROW(ops::mix_experts({}, {y, y}), ArgumentError, "weights must be a tensor");
  SLUICE_EXPECT_THROW(
      ops::mix_experts(w, {Tensor(), y}), ArgumentError, "outputs[0] must be a tensor");
  SLUICE_EXPECT_THROW(
      ops::mix_experts(w, {y, Tensor()}), ArgumentError, "each output must be a tensor");
  SLUICE_EXPECT_THROW(
      ops::mix_experts(w, {y}), ShapeError, "weights must be (2, 3, 1), got (2, 3, 2)");
  SLUICE_EXPECT_THROW(
      ops::mix_experts(w, {y, zeros({2, 3, 7})}), ShapeError, "each output must be");
  SLUICE_EXPECT_THROW(ops::mix_experts(zeros({1}), {zeros({})}), ShapeError, "got a scalar");
  SLUICE_EXPECT_THROW(
      ops::mix_experts(ops::cast(w, DType::f64), {y, y}),
      DTypeError,
      "weights must be f32, got f64");
  SLUICE_EXPECT_THROW(
      ops::mix_experts(w, {y, ops::cast(y, DType::bf16)}), DTypeError, "each output must be f32");
  SLUICE_EXPECT_THROW(
      ops::mix_experts(ops::cast(w, DType::i32), {y, y}), DTypeError, "weights must be floating");
}

}  // namespace
}  // namespace sluice::testing
