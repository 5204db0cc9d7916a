// The order, sums, ownership and life time of a backward pass.
#include <string>

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "engine/memory.h"
#include "tests/autograd/tiny_ops.h"
#include "tests/support/compare.h"

namespace sluice::autograd {
namespace {

using namespace sluice::testing::tiny;  // NOLINT: a test of its own operations
using Doubles = std::vector<double>;

Doubles grad_of(const Tensor& leaf) { return grad(leaf).to_vector<double>(); }

TEST(Backward, ProductRule) {
  const Tensor a = leaf({2, -3});
  const Tensor b = leaf({5, 7});
  backward(sum(mul(a, b)));
  EXPECT_EQ(grad_of(a), (Doubles{5, 7}));
  EXPECT_EQ(grad_of(b), (Doubles{2, -3}));
}

TEST(Backward, GradientsOfADiamondAreSummed) {
  const Tensor x = leaf({2, 3});
  const Tensor y = mul(x, x);        // x^2
  backward(sum(add(mul(y, x), y)));  // x^3 + x^2
  EXPECT_EQ(grad_of(x), (Doubles{3 * 4 + 4, 3 * 9 + 6}));
}

TEST(Backward, ALeafMayBeUsedManyTimesByOneNode) {
  const Tensor x = leaf({2, 3});
  backward(sum(add(x, x)));
  EXPECT_EQ(grad_of(x), (Doubles{2, 2}));
}

TEST(Backward, ARootThatIsALeafReceivesItsGradient) {
  const Tensor x = leaf({2, 3});
  backward(x, values({5, 7}));
  backward(x, values({1, 1}));
  EXPECT_EQ(grad_of(x), (Doubles{6, 8}));
}

TEST(Backward, MissingOutputGradientsAreUndefined) {
  const Tensor x = leaf({2, 3});
  backward(sum(powers(x)[1]));
  EXPECT_EQ(grad_of(x), (Doubles{4, 6}));
  backward(sum(powers(x)[0]));
  EXPECT_EQ(grad_of(x), (Doubles{5, 7}));
  const auto both = powers(x);
  backward(sum(add(both[0], both[1])));
  EXPECT_EQ(grad_of(x), (Doubles{10, 14}));
}

TEST(Backward, SharedGradientIsNeverAddedToInPlace) {
  // add() hands one tensor to both of its inputs. That of z is added to later, when `tens` has
  // run, and the sum must not show in that of x.
  const Tensor x = leaf({1, 1});
  const Tensor y = leaf({1, 1});
  const Tensor ones = values({1, 1});
  const Tensor z = mul(y, ones);
  const Tensor tens = mul(z, values({10, 10}));
  backward(sum(mul(add(add(x, z), tens), ones)));
  EXPECT_EQ(grad_of(x), (Doubles{1, 1}));
  EXPECT_EQ(grad_of(y), (Doubles{11, 11}));
  accumulate_into(grad(x), values({100, 100}));
  EXPECT_EQ(grad_of(y), (Doubles{11, 11}));
}

TEST(Backward, TheCallersGradientIsLeftAlone) {
  const Tensor x = leaf({1, 2});
  const Tensor seed = values({3, 4});
  backward(x, seed);
  backward(add(x, x), seed);
  EXPECT_EQ(seed.to_vector<double>(), (Doubles{3, 4}));
  EXPECT_EQ(grad_of(x), (Doubles{9, 12}));
}

TEST(Backward, LeafGradientAccumulatesInTheSameTensor) {
  const Tensor x = leaf({1, 2});
  backward(sum(mul(x, x)));
  const Tensor held = grad(x);
  backward(sum(mul(x, x)));
  EXPECT_TRUE(held.same_as(grad(x)));
  EXPECT_EQ(held.to_vector<double>(), (Doubles{4, 8}));
  set_grad(x, Tensor());
  EXPECT_FALSE(grad(x).defined());
  backward(sum(x));
  EXPECT_EQ(grad_of(x), (Doubles{1, 1}));
  EXPECT_EQ(held.to_vector<double>(), (Doubles{4, 8}));
}

// Hands out a part of a larger block of memory.
struct Part final : Node {
  explicit Part(const Tensor& a) : Node("part", {a}) {}
  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor large = zeros({1000}, {DType::f64, {}});
    (void)grads;
    return {large.alias({2}, {1}, 500)};
  }
};

TEST(Backward, LeafGradientKeepsNoLargerMemoryAlive) {
  const Tensor x = leaf({1, 2});
  const Tensor y = values({0, 0});
  record<Part>(y, x);
  backward(y, values({1, 1}));
  EXPECT_EQ(grad(x).storage()->bytes(), 2 * sizeof(double));
}

// Hands its gradient on as it is, as a reshape does.
struct Through final : Node {
  explicit Through(const Tensor& a) : Node("through", {a}) {}
  std::vector<Tensor> backward(std::span<const Tensor> grads) override { return {grads[0]}; }
};

TEST(Backward, GradientHandedThroughIsNotCopied) {
  const Tensor x = leaf({1});
  const Tensor y = values({1});
  record<Through>(y, x);
  const uint64_t before = cpu_allocator()->stats().allocations;
  backward(y);
  EXPECT_EQ(cpu_allocator()->stats().allocations - before, 1u);  // the 1 it starts from
  EXPECT_EQ(grad_of(x), (Doubles{1}));
}

TEST(Backward, LeafTurnedOffAfterRecordingGetsNothing) {
  const Tensor x = leaf({1, 2});
  const Tensor y = leaf({3, 4});
  const Tensor product = sum(mul(x, y));
  set_requires_grad(x, false);
  backward(product);
  EXPECT_FALSE(grad(x).defined());
  EXPECT_EQ(grad_of(y), (Doubles{1, 2}));
}

TEST(Backward, LeafMayDieBeforeBackward) {
  const Tensor y = leaf({3, 4});
  Tensor root;
  {
    const Tensor x = leaf({1, 2});
    root = sum(mul(x, y));
  }
  backward(root);
  EXPECT_EQ(grad_of(y), (Doubles{1, 2}));
}

constexpr int kDepth = 100'000;

Tensor chain(const Tensor& x, int depth = kDepth) {
  Tensor y = x;
  for (int i = 0; i < depth; ++i) y = add(y, x);
  return y;
}

TEST(Backward, DeepChainNeedsNoStack) {
  const Tensor x = leaf({1});
  {
    const Tensor y = chain(x);
    EXPECT_EQ(graph_report(y).size(), size_t(kDepth));
    backward(y);
    EXPECT_EQ(grad_of(x), (Doubles{kDepth + 1}));
  }                                    // destroys a released chain
  { const Tensor unused = chain(x); }  // and one that never ran
}

// Keeps a tensor with its history, not as an input: nodes then own each other through tensors only.
struct Holder final : Node {
  explicit Holder(const Tensor& a) : Node("holder", {}), held(a) {}
  std::vector<Tensor> backward(std::span<const Tensor> grads) override { return {grads[0]}; }
  Tensor held;
};

TEST(Backward, DeepChainOfNodesThatHoldTensorsNeedsNoStack) {
  Tensor y = leaf({1});
  for (int i = 0; i < kDepth; ++i) {
    const Tensor next = values({1});
    record<Holder>(next, y);
    y = next;
  }
  y = Tensor();
}

TEST(Backward, WideGraphIsDestroyedWithoutRecursion) {
  const Tensor x = leaf({1});
  Tensor y = mul(x, x);
  for (int i = 0; i < 2000; ++i) y = add(mul(y, y), mul(y, x));
  y = Tensor();
}

TEST(Backward, SavedTensorsAreFreedAsSoonAsTheirNodeHasRun) {
  // Each of the 50 exp saves 80 kB. At the end of backward only x, its gradient and a few
  // temporaries are left; the peak is that of the forward pass plus those temporaries.
  const int64_t count = 10'000;
  const size_t bytes = size_t(count) * sizeof(double);
  const Tensor x = set_requires_grad(full({count}, 1.0, {DType::f64, {}}));
  const Allocator& allocator = *cpu_allocator();
  const size_t before = allocator.stats().bytes_in_use;
  Tensor y = exp(x);
  for (int i = 0; i < 49; ++i) y = exp(mul(y, x));
  const Tensor root = sum(y);
  y = Tensor();
  const size_t forward = allocator.stats().bytes_in_use - before;
  cpu_allocator()->reset_peak();
  backward(root);
  EXPECT_GT(forward, 49 * bytes);
  EXPECT_LT(allocator.stats().peak_bytes_in_use - before, forward + 6 * bytes);
  EXPECT_LT(allocator.stats().bytes_in_use - before, 2 * bytes);
}

TEST(Backward, SecondBackwardIsAnError) {
  const Tensor x = leaf({2});
  const Tensor y = mul(x, x);
  const Tensor root = sum(y);
  backward(root);
  SLUICE_EXPECT_THROW((backward(root), 0), GradError, "backward of sum: its saved tensors");
  SLUICE_EXPECT_THROW((backward(sum(y)), 0), GradError, "backward of mul: its saved tensors");
}

TEST(Backward, RetainedGraphRunsAgain) {
  const Tensor x = leaf({2});
  const Tensor root = sum(mul(x, x));
  backward(root, {}, {.retain_graph = true});
  backward(root, {}, {.retain_graph = true});
  backward(root);
  EXPECT_EQ(grad_of(x), (Doubles{12}));
  SLUICE_EXPECT_THROW((backward(root), 0), GradError, "retain_graph keeps them");
}

TEST(Backward, StaleSavedTensorIsAnError) {
  const Tensor x = leaf({2, 3});
  const Tensor factor = values({5, 7});
  const Tensor root = sum(mul(x, factor));
  fill(factor, 1);
  SLUICE_EXPECT_THROW((backward(root), 0), GradError, "backward of mul: a saved tensor (f64 (2)");
  const Tensor out = exp(x);
  const Tensor second = sum(out);
  fill(out.alias({1}, {1}, 1), 0);  // through a view
  SLUICE_EXPECT_THROW((backward(second), 0), GradError, "backward of exp: a saved tensor");
}

struct WrongShape final : Node {
  explicit WrongShape(const Tensor& a) : Node("wrong", {a}) {}
  std::vector<Tensor> backward(std::span<const Tensor>) override { return {values({1})}; }
};
struct WrongDType final : Node {
  explicit WrongDType(const Tensor& a) : Node("wrong", {a}) {}
  std::vector<Tensor> backward(std::span<const Tensor>) override { return {zeros({2})}; }
};

TEST(Backward, GradientOfTheWrongKindIsAnError) {
  const Tensor x = leaf({2, 3});
  const Tensor y = values({1, 1});
  record<WrongShape>(y, x);
  SLUICE_EXPECT_THROW(
      (backward(y, values({1, 1})), 0),
      GradError,
      "gradient of input 0 must be f64 (2), got f64 (1)");
  const Tensor z = values({1, 1});
  record<WrongDType>(z, x);
  SLUICE_EXPECT_THROW(
      (backward(z, values({1, 1})), 0),
      GradError,
      "gradient of input 0 must be f64 (2), got f32 (2)");
}

struct WrongCount final : Node {
  WrongCount(const Tensor& a, size_t returned) : Node("wrong", {a, a}), count(returned) {}
  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    return std::vector<Tensor>(count, grads[0]);
  }
  size_t count;
};

TEST(Backward, WrongNumberOfGradientsIsAnError) {
  const Tensor x = leaf({2, 3});
  for (const size_t count : {0, 1, 2, 3}) {
    const Tensor y = values({1, 1});
    record<WrongCount>(y, x, count);
    if (count == 0 || count == 2) {
      EXPECT_NO_THROW(backward(y, values({1, 1})));
      continue;
    }
    SLUICE_EXPECT_THROW(
        (backward(y, values({1, 1})), 0), GradError, "backward of wrong: must return 2 gradients");
  }
}

TEST(Backward, ArgumentsAreChecked) {
  const Tensor x = leaf({2, 3});
  const Tensor y = mul(x, x);
  SLUICE_EXPECT_THROW((backward(Tensor()), 0), GradError, "got undefined");
  SLUICE_EXPECT_THROW((backward(values({1})), 0), GradError, "root must depend on a tensor");
  SLUICE_EXPECT_THROW((backward(y), 0), ShapeError, "root must have one element");
  SLUICE_EXPECT_THROW((backward(y, values({1})), 0), ShapeError, "must have shape (2), got (1)");
  SLUICE_EXPECT_THROW((backward(y, zeros({2})), 0), DTypeError, "must be f64, got f32");
  SLUICE_EXPECT_THROW(
      (backward(y, zeros({2}, {DType::f64, {DeviceType::simt, 0}})), 0), DeviceError, "on cpu");
  SLUICE_EXPECT_THROW(set_requires_grad(zeros({2}, {DType::i32, {}})), DTypeError, "got i32");
  SLUICE_EXPECT_THROW(set_requires_grad(y), GradError, "must be a leaf, got the result of mul");
  SLUICE_EXPECT_THROW((set_grad(y, Tensor()), 0), GradError, "got a recorded result");
  SLUICE_EXPECT_THROW((set_grad(values({1}), Tensor()), 0), GradError, "requires a gradient");
  SLUICE_EXPECT_THROW((set_grad(x, values({1})), 0), ShapeError, "shape must be (2), got (1)");
  SLUICE_EXPECT_THROW((set_grad(x, zeros({2})), 0), DTypeError, "dtype must be f64, got f32");
  SLUICE_EXPECT_THROW(
      (set_grad(x, zeros({2}, {DType::f64, {DeviceType::simt, 0}})), 0), DeviceError, "on cpu");
  SLUICE_EXPECT_THROW(
      (set_grad(x, values({1}).alias({2}, {0}, 0)), 0), ArgumentError, "must be contiguous");
  SLUICE_EXPECT_THROW((record<Add>(x, x, x), 0), GradError, "output 0 must be a fresh tensor");
}

TEST(NoGrad, NothingIsRecordedInItsScope) {
  const Tensor x = leaf({2});
  {
    const NoGrad off;
    EXPECT_FALSE(recording());
    EXPECT_FALSE(requires_grad(mul(x, x)));
    {
      const RecordingScope on(true);
      EXPECT_TRUE(requires_grad(mul(x, x)));
    }
    EXPECT_FALSE(recording());
  }
  EXPECT_TRUE(recording());
  EXPECT_TRUE(requires_grad(mul(x, x)));
  EXPECT_FALSE(requires_grad(mul(x, x).detach()));
  EXPECT_FALSE(requires_grad(mul(values({1}), values({1}))));
}

struct SeesRecording final : Node {
  explicit SeesRecording(const Tensor& a) : Node("sees", {a}) {}
  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    EXPECT_FALSE(recording());
    return {grads[0]};
  }
};

TEST(NoGrad, HoldsDuringBackwardAndEndsWhenItThrows) {
  const Tensor x = leaf({2});
  const Tensor y = values({1});
  record<SeesRecording>(y, x);
  backward(y);
  EXPECT_THROW(backward(y), GradError);
  EXPECT_TRUE(recording());
}

TEST(GraphReport, ListsNodesNewestFirstWithTheirBytes) {
  const Tensor x = leaf({1, 2, 3});
  const Tensor y = mul(x, x);
  const Tensor root = sum(add(exp(y), y));
  std::vector<std::string> names;
  std::vector<size_t> bytes;
  uint64_t last = UINT64_MAX;
  for (const NodeReport& row : graph_report(root)) {
    names.push_back(row.name);
    bytes.push_back(row.saved_bytes);
    EXPECT_LT(row.number, last);
    last = row.number;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"sum", "add", "exp", "mul"}));
  EXPECT_EQ(bytes, (std::vector<size_t>{0, 0, 24, 48}));
  backward(root);
  for (const NodeReport& row : graph_report(root)) EXPECT_EQ(row.saved_bytes, 0u);
  EXPECT_TRUE(graph_report(x).empty());
}

TEST(GraphReport, ARepeatedElementCountsOnce) {
  const Tensor x = set_requires_grad(zeros({1}, {DType::f64, {}}));
  const Tensor wide = x.alias({1000}, {0}, 0);
  const Tensor out = zeros({1000}, {DType::f64, {}});
  record<Mul>(out, x, wide);
  EXPECT_EQ(graph_report(out)[0].saved_bytes, 16u);
}

}  // namespace
}  // namespace sluice::autograd
