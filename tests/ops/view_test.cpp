// Views share memory, keep values in place, and carry gradients back.
#include "ops/view.h"

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "autograd/node.h"
#include "engine/errors.h"
#include "ops/binary.h"
#include "tests/support/compare.h"
#include "tests/support/strided.h"

namespace sluice::testing {
namespace {

using Values = std::vector<double>;

TEST(View, ReshapeOfADenseTensorSharesMemory) {
  const Tensor x = counting({2, 3, 4});
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{24}, {6, -1}, {2, 1, 12, 1}, {4, 6}}) {
    const Tensor y = ops::reshape(x, shape);
    EXPECT_EQ(y.storage(), x.storage());
    EXPECT_TRUE(y.contiguous());
    EXPECT_EQ(y.to_vector<double>(), x.to_vector<double>());
  }
  EXPECT_TRUE(ops::reshape(x, {2, 3, 4}).same_as(x));
  EXPECT_EQ(ops::reshape(x, Shape{3, 8}).shape(), (Shape{3, 8}));
}

// Heads kept as (B, T, H, D) memory: permuting back and merging the heads must cost nothing.
TEST(View, ReshapeOfAStridedTensorIsAViewWhenAxesMerge) {
  const Tensor memory = counting({2, 5, 3, 4});
  const Tensor heads = ops::permute(memory, {0, 2, 1, 3});
  const Tensor back = ops::reshape(ops::permute(heads, {0, 2, 1, 3}), {2, 5, 12});
  EXPECT_EQ(back.storage(), memory.storage());

  const Tensor part = ops::slice(counting({4, 6, 5}), 1, 1, 3);  // (4, 2, 5), a gap after axis 0
  const Tensor merged = ops::reshape(part, {2, 2, 10});
  EXPECT_EQ(merged.storage(), part.storage());
  EXPECT_EQ(merged.to_vector<double>(), part.to_vector<double>());
  const Tensor cut = ops::reshape(part, {4, 1, 2, 5, 1});
  EXPECT_EQ(cut.storage(), part.storage());
  EXPECT_EQ(cut.to_vector<double>(), part.to_vector<double>());
}

// The stride of an axis of extent 1 says nothing about where elements lie.
TEST(View, ReshapeMergesAcrossExtentsOfOne) {
  const Tensor rows = ops::slice(counting({2, 8, 5}), 1, 0, 4);
  const Tensor x = ops::unsqueeze(rows, 2);  // (2, 4, 1, 5) with strides (40, 5, 1, 1)
  const Tensor y = ops::reshape(x, {2, 20});
  EXPECT_EQ(y.storage(), rows.storage());
  EXPECT_EQ(y.to_vector<double>(), rows.to_vector<double>());
}

TEST(View, ReshapeCopiesWhenNoStridesFit) {
  const Tensor heads = ops::permute(counting({2, 5, 3, 4}), {0, 2, 1, 3});
  const Tensor flat = ops::reshape(heads, {2, 60});
  EXPECT_NE(flat.storage(), heads.storage());
  EXPECT_TRUE(flat.contiguous());
  EXPECT_EQ(flat.to_vector<double>(), heads.to_vector<double>());
  EXPECT_EQ(
      ops::reshape(strided(counting({3, 4})), {12}).to_vector<double>(),
      counting({12}).to_vector<double>());
}

TEST(View, PermuteAndTranspose) {
  const Tensor x = counting({2, 3, 4});
  const Tensor y = ops::permute(x, {2, 0, -2});
  EXPECT_EQ(y.shape(), (Shape{4, 2, 3}));
  const auto values = y.to_vector<double>();
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t j = 0; j < 2; ++j) {
      for (int64_t k = 0; k < 3; ++k) {
        EXPECT_EQ(values[size_t((i * 2 + j) * 3 + k)], double((j * 3 + k) * 4 + i));
      }
    }
  }
  EXPECT_EQ(ops::transpose(counting({2, 2}), 0, -1).to_vector<double>(), (Values{0, 2, 1, 3}));
}

TEST(View, SliceAndSelect) {
  const Tensor x = counting({3, 5});
  EXPECT_EQ(ops::slice(x, 1, 1, 3).to_vector<double>(), (Values{1, 2, 6, 7, 11, 12}));
  EXPECT_EQ(ops::slice(x, -1, 0, 5, 2).to_vector<double>(), (Values{0, 2, 4, 5, 7, 9, 10, 12, 14}));
  EXPECT_EQ(ops::slice(x, 1, -2, 5, 3).to_vector<double>(), (Values{3, 8, 13}));
  EXPECT_EQ(ops::slice(x, 0, 2, 2).shape(), (Shape{0, 5}));
  EXPECT_EQ(ops::slice(x, 0, 3, 3).shape(), (Shape{0, 5}));
  EXPECT_EQ(ops::select(x, 0, -1).to_vector<double>(), (Values{10, 11, 12, 13, 14}));
  EXPECT_EQ(ops::select(x, 1, 2).to_vector<double>(), (Values{2, 7, 12}));
}

TEST(View, ExpandRepeatsWithoutCopying) {
  const Tensor x = counting({2, 1});
  const Tensor y = ops::expand(x, {3, 2, 2});
  EXPECT_EQ(y.storage(), x.storage());
  EXPECT_EQ(y.to_vector<double>(), (Values{0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1}));
  EXPECT_EQ(ops::expand(counting({1, 3}), {0, 3}).numel(), 0);
}

TEST(View, UnsqueezeAndSqueezeUndoEachOther) {
  const Tensor x = strided(counting({3, 4}));
  for (const int axis : {0, 1, 2, -1, -3}) {
    const Tensor y = ops::unsqueeze(x, axis);
    EXPECT_EQ(y.rank(), 3);
    EXPECT_EQ(y.size(axis), 1);
    EXPECT_EQ(ops::squeeze(y, axis).shape(), x.shape());
    EXPECT_EQ(ops::squeeze(y, axis).to_vector<double>(), x.to_vector<double>());
  }
}

TEST(View, SplitCutsInOrder) {
  const auto pieces = ops::split(counting({2, 6}), 1, {1, 0, 3, 2});
  ASSERT_EQ(pieces.size(), 4u);
  EXPECT_EQ(pieces[0].to_vector<double>(), (Values{0, 6}));
  EXPECT_EQ(pieces[1].numel(), 0);
  EXPECT_EQ(pieces[2].to_vector<double>(), (Values{1, 2, 3, 7, 8, 9}));
  EXPECT_EQ(pieces[3].to_vector<double>(), (Values{4, 5, 10, 11}));
}

TEST(View, EveryDTypeAndEmptyTensors) {
  for (const DType dtype : {DType::u8, DType::i32, DType::i64, DType::bf16}) {
    const Tensor x = counting({2, 3}, dtype);
    EXPECT_EQ(values_of(ops::transpose(x, 0, 1)), (Values{0, 3, 1, 4, 2, 5}));
  }
  const Tensor none = zeros({0, 4});
  EXPECT_EQ(ops::reshape(none, {2, 0, 7}).numel(), 0);
  EXPECT_EQ(ops::reshape(none, {-1, 4}).shape(), (Shape{0, 4}));
  EXPECT_EQ(ops::permute(none, {1, 0}).shape(), (Shape{4, 0}));
  EXPECT_EQ(ops::split(none, 0, {0, 0}).size(), 2u);
  EXPECT_EQ(ops::split(zeros({0}), 0, {}).size(), 0u);
}

struct GradCase {
  const char* name;
  Shape shape;
  autograd::GradcheckFunction function;
};

TEST(View, Gradients) {
  const std::vector<GradCase> cases = {
      {"reshape",
       {2, 6},
       [](auto& x) {
         return std::vector{ops::reshape(x[0], {3, -1})};
       }},
      {"reshape copies",
       {2, 3, 4},
       [](auto& x) {
         return std::vector{ops::reshape(ops::permute(x[0], {2, 0, 1}), {24})};
       }},
      {"permute",
       {2, 3, 4},
       [](auto& x) {
         return std::vector{ops::permute(x[0], {2, 0, 1})};
       }},
      {"slice", {4, 5}, [](auto& x) { return std::vector{ops::slice(x[0], 1, 1, 5, 2)}; }},
      {"slice of slice",
       {4, 7, 2},
       [](auto& x) { return std::vector{ops::slice(ops::slice(x[0], 1, 1, 7, 2), 0, 1, 3)}; }},
      {"empty slice", {4, 5}, [](auto& x) { return std::vector{ops::slice(x[0], 1, 2, 2)}; }},
      {"select first", {3, 4}, [](auto& x) { return std::vector{ops::select(x[0], 0, 1)}; }},
      {"select last", {3, 4}, [](auto& x) { return std::vector{ops::select(x[0], 1, -1)}; }},
      {"expand",
       {3, 1},
       [](auto& x) {
         return std::vector{ops::expand(x[0], {2, 3, 4})};
       }},
      {"expand scalar",
       {},
       [](auto& x) {
         return std::vector{ops::expand(x[0], {2, 3})};
       }},
      {"unsqueeze",
       {3, 4},
       [](auto& x) { return std::vector{ops::squeeze(ops::unsqueeze(x[0], 1), 1)}; }},
      {"split",
       {2, 6},
       [](auto& x) {
         return ops::split(x[0], 1, {1, 3, 2});
       }},
      {"split, a piece unused",
       {2, 6},
       [](auto& x) {
         return std::vector{ops::split(x[0], 1, {1, 3, 2})[2]};
       }},
  };
  for (const GradCase& c : cases) {
    EXPECT_TRUE(gradcheck_passes(
        [&](const std::vector<Tensor>& x) { return c.function({ops::mul(x[0], x[0])}); },
        {normal(c.shape)}))
        << c.name;
  }
}

TEST(View, BackwardOfSplitIsOneCat) {
  const Tensor x = autograd::set_requires_grad(normal({4, 6}));
  const auto pieces = ops::split(x, 1, {2, 2, 2});
  EXPECT_EQ(pieces[0].grad_meta()->node, pieces[2].grad_meta()->node);
  EXPECT_EQ(pieces[2].grad_meta()->index, 2);
}

TEST(View, NothingIsRecordedWithoutNeed) {
  EXPECT_FALSE(autograd::requires_grad(ops::reshape(normal({4}), {2, 2})));
  const autograd::NoGrad off;
  const Tensor leaf = autograd::set_requires_grad(normal({4}));
  EXPECT_FALSE(autograd::requires_grad(ops::slice(leaf, 0, 0, 2)));
}

TEST(View, Throws) {
  const Tensor x = zeros({2, 3});
  SLUICE_EXPECT_THROW(ops::reshape(x, {4, 2}), ShapeError, "must have 6 elements as (2, 3)");
  SLUICE_EXPECT_THROW(ops::reshape(x, {-1, -1}), ShapeError, "one -1 at most");
  SLUICE_EXPECT_THROW(ops::reshape(x, {4, -1}), ShapeError, "must divide 6 elements");
  SLUICE_EXPECT_THROW(ops::reshape(zeros({0}), {0, -1}), ShapeError, "beside -1");
  SLUICE_EXPECT_THROW(ops::reshape(x, {-2, -3}), ShapeError, "must be >= 0");
  SLUICE_EXPECT_THROW(ops::reshape({}, {1}), ArgumentError, "reshape: x must be a tensor");
  SLUICE_EXPECT_THROW(ops::permute(x, {0}), ShapeError, "axes must be 2 numbers, got 1");
  SLUICE_EXPECT_THROW(ops::permute(x, {0, -2}), ShapeError, "got 0 twice");
  SLUICE_EXPECT_THROW(ops::permute(x, {0, 2}), ShapeError, "permute: axis must be in [-2, 2)");
  SLUICE_EXPECT_THROW(ops::transpose(x, 0, 2), ShapeError, "transpose: axis");
  SLUICE_EXPECT_THROW(ops::slice(x, 2, 0, 1), ShapeError, "slice: axis");
  SLUICE_EXPECT_THROW(ops::slice(x, 1, 0, 4), ShapeError, "must lie in [0, 3] of axis 1");
  SLUICE_EXPECT_THROW(ops::slice(x, 1, 2, 1), ShapeError, "got [2, 1)");
  SLUICE_EXPECT_THROW(ops::slice(x, 1, -4, 1), ShapeError, "got [-1, 1)");
  SLUICE_EXPECT_THROW(ops::slice(x, 1, 0, 1, 0), ArgumentError, "step must be >= 1, got 0");
  SLUICE_EXPECT_THROW(ops::select(x, 1, 3), ShapeError, "index must be in [-3, 3), got 3");
  SLUICE_EXPECT_THROW(ops::select(zeros({0}), 0, 0), ShapeError, "select: index");
  SLUICE_EXPECT_THROW(ops::expand(x, {2, 4}), ShapeError, "expand: shapes must broadcast");
  SLUICE_EXPECT_THROW(ops::expand(x, {1, 3}), ShapeError, "x must broadcast to (1, 3)");
  SLUICE_EXPECT_THROW(ops::unsqueeze(x, 3), ShapeError, "unsqueeze: axis");
  SLUICE_EXPECT_THROW(ops::squeeze(x, 0), ShapeError, "axis 0 must have extent 1");
  SLUICE_EXPECT_THROW(ops::split(x, 1, {1, 1}), ShapeError, "must add up to 3, got 2");
  SLUICE_EXPECT_THROW(ops::split(x, 1, {1, 3}), ShapeError, "must add up to 3, got 3 after 1");
  SLUICE_EXPECT_THROW(ops::split(x, 1, {-1, 4}), ShapeError, "split: sizes");
}

}  // namespace
}  // namespace sluice::testing
