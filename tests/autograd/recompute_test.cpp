// A recomputed block must give the gradients of the plain one, bit for bit, from less memory.
#include "autograd/recompute.h"

#include <memory>

#include <gtest/gtest.h>

#include "engine/errors.h"
#include "engine/memory.h"
#include "engine/philox.h"
#include "tests/autograd/tiny_ops.h"
#include "tests/support/compare.h"

namespace sluice::autograd {
namespace {

using namespace sluice::testing::tiny;  // NOLINT
using testing::bit_equal;

Tensor normal(int64_t count, uint64_t seed) { return randn({count}, seed, 0, {DType::f64, {}}); }
Tensor normal_leaf(int64_t count, uint64_t seed) { return set_requires_grad(normal(count, seed)); }

// Random numbers in a block are a function of their key.
Tensor noise(const Tensor& x, uint64_t stream) {
  Tensor mask = empty(x.shape(), {DType::f64, {}});
  for (int64_t i = 0; i < x.numel(); ++i) {
    mask.data<double>()[i] = unit_float(philox4x32({7, stream}, uint64_t(i))[0]);
  }
  return mul(x, mask);
}

enum class Form { plain, recomputed, nested };

// A stack of residual layers: x + layer(x), which uses x and the weight several times, so that the
// order of every sum shows in the last bits.
struct Model {
  std::vector<Tensor> weights;
  Tensor shared;  // used by every layer: its gradient is a long sum

  explicit Model(int64_t count) : shared(normal_leaf(count, 99)) {
    for (uint64_t i = 0; i < 4; ++i) weights.push_back(normal_leaf(count, 10 + i));
  }

  Tensor layer(const Tensor& x, uint64_t i) const {
    const Tensor h = noise(add(mul(x, weights[i]), mul(x, shared)), i);
    return add(
        mul(exp(mul(h, values(std::vector<double>(size_t(h.numel()), 0.01)))), x), mul(h, shared));
  }

  Tensor run(Tensor x, Form form) const {
    for (uint64_t i = 0; i < weights.size(); ++i) {
      const auto block = [this, i](const Tensor& in) { return layer(in, i); };
      const std::vector<Tensor> parameters = {weights[i], shared};
      Tensor y;
      switch (form) {
        case Form::plain:
          y = block(x);
          break;
        case Form::recomputed:
          y = recompute(block, x, parameters);
          break;
        case Form::nested:
          y = recompute(
              [&, block, parameters](const Tensor& in) { return recompute(block, in, parameters); },
              x,
              parameters);
          break;
      }
      x = add(x, y);
    }
    return sum(x);
  }
};

struct Outcome {
  double loss;
  std::vector<Tensor> grads;
};

Outcome run(Form form, int64_t count, bool input_needs_grad) {
  const Model model(count);
  const Tensor x = normal(count, 1);
  if (input_needs_grad) set_requires_grad(x);
  // Something before the stack that every layer's input gradient flows into.
  const Tensor root = model.run(input_needs_grad ? mul(x, x) : x, form);
  backward(root);
  Outcome result{root.item<double>(), model.weights};
  for (Tensor& tensor : result.grads) tensor = grad(tensor);
  result.grads.push_back(grad(model.shared));
  if (input_needs_grad) result.grads.push_back(grad(x));
  return result;
}

TEST(Recompute, GradientsEqualThePlainOnesBitForBit) {
  for (const bool input_needs_grad : {false, true}) {
    const Outcome plain = run(Form::plain, 1000, input_needs_grad);
    for (const Form form : {Form::recomputed, Form::nested}) {
      const Outcome other = run(form, 1000, input_needs_grad);
      EXPECT_EQ(other.loss, plain.loss);  // fails on NaN, too
      for (size_t i = 0; i < plain.grads.size(); ++i) {
        EXPECT_TRUE(bit_equal(other.grads[i], plain.grads[i], "gradient " + std::to_string(i)));
      }
    }
  }
}

TEST(Recompute, SavesOnlyItsInputs) {
  const Model model(1000);
  const Tensor x = normal_leaf(1000, 1);
  const auto bytes = [&](Form form) {
    size_t sum = 0;
    for (const NodeReport& row : graph_report(model.run(x, form))) sum += row.saved_bytes;
    return sum;
  };
  EXPECT_EQ(bytes(Form::recomputed), 4 * 8000u);
  EXPECT_GT(bytes(Form::plain), 10 * bytes(Form::recomputed));
}

TEST(Recompute, PeakMemoryIsThatOfOneBlock) {
  const int64_t count = 10'000;
  const size_t bytes = size_t(count) * sizeof(double);
  const Tensor x = normal_leaf(count, 1);
  const size_t before = cpu_allocator()->stats().bytes_in_use;
  cpu_allocator()->reset_peak();
  Tensor y = x;
  for (int block = 0; block < 8; ++block) {
    y = recompute(
        [](const Tensor& in) {
          Tensor h = in;
          for (int i = 0; i < 8; ++i) {
            h = exp(mul(h, values(std::vector<double>(size_t(h.numel()), -1.0))));
          }
          return h;
        },
        y);
  }
  const Tensor root = sum(y);
  y = Tensor();
  backward(root);
  // 8 saved inputs, 8 * 3 tensors of the one block that is alive, gradients; plain: over 128.
  EXPECT_LT(cpu_allocator()->stats().peak_bytes_in_use - before, 40 * bytes);
}

TEST(Recompute, SeveralInputsAndOutputsOfWhichSomeAreUnused) {
  const Tensor a = normal_leaf(5, 1);
  const Tensor b = normal(5, 2);
  const Block block = [](std::span<const Tensor> in) {
    return std::vector<Tensor>{
        mul(in[0], in[1]), exp(in[0]), from_values<int32_t>({1, 2}, {2}), in[1], in[0]};
  };
  const std::vector<Tensor> inputs = {a, b};
  const auto outputs = recompute(block, inputs);
  EXPECT_FALSE(requires_grad(outputs[2]));
  EXPECT_EQ(outputs[2].to_vector<int32_t>(), (std::vector<int32_t>{1, 2}));
  backward(sum(add(outputs[0], outputs[4])));
  std::vector<double> expected = b.to_vector<double>();
  for (double& value : expected) value += 1;
  EXPECT_EQ(grad(a).to_vector<double>(), expected);
  EXPECT_FALSE(requires_grad(b));
}

TEST(Recompute, OneResultReturnedTwiceIsTwoOutputs) {
  const Tensor x = normal_leaf(5, 1);
  const Block block = [](std::span<const Tensor> in) { return std::vector<Tensor>(2, exp(in[0])); };
  const auto outputs = recompute(block, {&x, 1});
  backward(sum(add(outputs[0], mul(outputs[1], outputs[1]))));
  const std::vector<double> e = exp(x.detach()).to_vector<double>();
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(grad(x).to_vector<double>()[i], e[i] + 2 * e[i] * e[i], 1e-12);
  }
}

TEST(Recompute, CapturedResultGetsItsGradient) {
  const Tensor weight = normal_leaf(5, 1);
  const Tensor scaled = mul(weight, values({2, 2, 2, 2, 2}));  // not a leaf
  const Tensor x = normal(5, 2);
  const std::vector<Tensor> parameters = {scaled};
  const Tensor y = recompute([&](const Tensor& in) { return mul(in, scaled); }, x, parameters);
  EXPECT_EQ(graph_report(y)[0].name, "recompute");  // though no input needs a gradient
  backward(sum(y));
  std::vector<double> expected = x.to_vector<double>();
  for (double& value : expected) value *= 2;
  EXPECT_EQ(grad(weight).to_vector<double>(), expected);
}

TEST(Recompute, RecordsNothingWhenNothingNeedsAGradient) {
  int runs = 0;
  const auto block = [&](const Tensor& in) { return ++runs, mul(in, in); };
  const Tensor x = normal(5, 1);
  EXPECT_FALSE(requires_grad(recompute(block, x)));
  const Tensor w = normal_leaf(5, 2);
  {
    const NoGrad off;
    EXPECT_FALSE(requires_grad(recompute(block, w)));
  }
  EXPECT_EQ(runs, 2);
  const Tensor root = sum(recompute(block, w));
  EXPECT_EQ(runs, 3);
  backward(root, {}, {.retain_graph = true});
  EXPECT_EQ(runs, 4);
  backward(root);
  EXPECT_EQ(runs, 5);
  SLUICE_EXPECT_THROW((backward(root), 0), GradError, "an earlier backward freed them");
}

TEST(Recompute, FreesWhatTheBlockHoldsOnceItHasRun) {
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;
  const Tensor root = sum(recompute(
      [held = std::move(held)](const Tensor& in) { return *held == 1 ? exp(in) : in; },
      normal_leaf(5, 1)));
  EXPECT_FALSE(watch.expired());
  backward(root);
  EXPECT_TRUE(watch.expired());
}

TEST(Recompute, StaleInputIsAnError) {
  const Tensor x = normal_leaf(5, 1);
  const Tensor y = mul(x, x);
  const Tensor root = sum(recompute([](const Tensor& in) { return exp(in); }, y));
  fill(y, 0);
  SLUICE_EXPECT_THROW((backward(root), 0), GradError, "backward of recompute: a saved tensor");
}

// The second run would use the new values: gradients of another function.
TEST(Recompute, StaleParameterIsAnError) {
  const Tensor x = normal_leaf(5, 1), weight = normal_leaf(5, 2);
  const std::vector<Tensor> parameters = {weight};
  const auto block = [&](const Tensor& in) { return mul(in, weight); };
  const Tensor y = recompute(block, x, parameters);
  EXPECT_EQ(graph_report(y)[0].saved_bytes, 5 * sizeof(double));
  fill(weight, 0);
  SLUICE_EXPECT_THROW((backward(sum(y)), 0), GradError, "backward of recompute: a saved tensor");
}

TEST(Recompute, BlockThatIsNotPureIsAnError) {
  const Tensor x = normal_leaf(5, 1);
  int runs = 0;
  const Block shrinking = [&](std::span<const Tensor> in) {
    std::vector<Tensor> out = {mul(in[0], in[0])};
    if (++runs == 1) out.push_back(mul(in[0], in[0]));
    return out;
  };
  const auto outputs = recompute(shrinking, {&x, 1});
  SLUICE_EXPECT_THROW((backward(sum(outputs[0])), 0), GradError, "must return 2 tensors");
  runs = 0;
  const Tensor changing =
      recompute([&](const Tensor& in) { return ++runs == 1 ? mul(in, in) : sum(in); }, x);
  SLUICE_EXPECT_THROW((backward(sum(changing)), 0), GradError, "must have shape (5)");
}

}  // namespace
}  // namespace sluice::autograd
