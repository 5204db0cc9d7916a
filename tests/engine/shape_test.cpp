// Shapes, axes, broadcasting and device names, with every message.
#include "engine/shape.h"

#include <gtest/gtest.h>

#include "engine/device.h"
#include "engine/errors.h"
#include "tests/support/compare.h"

namespace sluice {
namespace {

TEST(Shape, CountsAndPrints) {
  EXPECT_EQ(Shape().numel(), 1);
  EXPECT_EQ(to_string(Shape()), "()");
  EXPECT_EQ(Shape({2, 3, 5}).numel(), 30);
  EXPECT_EQ(to_string(Shape({2, 3, 5})), "(2, 3, 5)");
  EXPECT_EQ(Shape({2, 0, 5}).numel(), 0);
  EXPECT_TRUE(Shape({2, 3}) == Shape({2, 3}));
  EXPECT_FALSE(Shape({2, 3}) == Shape({2, 3, 1}));
  EXPECT_FALSE(Shape({2, 3}) == Shape({3, 2}));
  EXPECT_EQ(Shape({int64_t{1} << 31, 4}).numel(), int64_t{1} << 33);
}

TEST(Shape, RefusesWhatCannotBe) {
  const int64_t huge = int64_t{1} << 32;
  SLUICE_EXPECT_THROW(Shape({2, -1}), ShapeError, "extent 1 must be >= 0, got -1");
  SLUICE_EXPECT_THROW(
      Shape({1, 1, 1, 1, 1, 1, 1, 1, 1}), ShapeError, "rank must be at most 8, got 9");
  SLUICE_EXPECT_THROW(Shape({huge, huge}), ShapeError, "must fit in 63 bits");
  // No elements, but strides that would overflow: the same wherever the 0 stands.
  SLUICE_EXPECT_THROW(Shape({huge, huge, 0}), ShapeError, "must fit in 63 bits");
  SLUICE_EXPECT_THROW(Shape({0, huge, huge}), ShapeError, "must fit in 63 bits");
}

TEST(Shape, ContiguousStrides) {
  const Strides strides = contiguous_strides({4, 0, 3, 2});
  EXPECT_EQ(strides[0], 6);
  EXPECT_EQ(strides[1], 6);
  EXPECT_EQ(strides[2], 2);
  EXPECT_EQ(strides[3], 1);
}

TEST(Shape, AxesCountFromEitherEnd) {
  EXPECT_EQ(normalize_axis(0, 3, "op"), 0);
  EXPECT_EQ(normalize_axis(-1, 3, "op"), 2);
  EXPECT_EQ(normalize_axis(-3, 3, "op"), 0);
  SLUICE_EXPECT_THROW(
      normalize_axis(3, 3, "sum"), ShapeError, "sum: axis must be in [-3, 3), got 3");
  SLUICE_EXPECT_THROW(normalize_axis(-4, 3, "sum"), ShapeError, "got -4");
  SLUICE_EXPECT_THROW(normalize_axis(0, 0, "sum"), ShapeError, "axis must be in [0, 0)");
}

TEST(Shape, Broadcasting) {
  EXPECT_EQ(broadcast_shapes({2, 1, 5}, {3, 1}, "add"), Shape({2, 3, 5}));
  EXPECT_EQ(broadcast_shapes({}, {4}, "add"), Shape({4}));
  EXPECT_EQ(broadcast_shapes({1, 3}, {0, 3}, "add"), Shape({0, 3}));
  SLUICE_EXPECT_THROW(
      broadcast_shapes({2, 3}, {2, 4}, "add"),
      ShapeError,
      "add: shapes must broadcast, got (2, 3) and (2, 4)");
  SLUICE_EXPECT_THROW(broadcast_shapes({2}, {0}, "add"), ShapeError, "got (2) and (0)");
}

TEST(Device, NamesRoundTrip) {
  for (const char* name : {"cpu", "simt", "cuda:0", "cuda:12"}) {
    EXPECT_EQ(to_string(parse_device(name)), name);
  }
  EXPECT_EQ(parse_device("cuda"), parse_device("cuda:0"));
  for (const char* name :
       {"", "gpu", "cpu:0", "cuda:", "cuda:-1", "cuda:x", "cuda:1x", "cuda:99999999999"}) {
    SLUICE_EXPECT_THROW(parse_device(name), ArgumentError, "must be cpu, simt, cuda or cuda:INDEX");
  }
}

}  // namespace
}  // namespace sluice
