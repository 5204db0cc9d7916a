// Work and time of routes, against counts by hand.
#include "models/cost_model.h"

#include <cmath>

#include <gtest/gtest.h>

#include "models/routes.h"

namespace sluice {
namespace {

using Row = std::array<double, kExperts>;

constexpr int64_t kWindow = 5;

// (1, T) ids that are -1 but for the given stretches [begin, end).
struct Stretch {
  int64_t begin, end;
  Expert expert;
};
Tensor routes(int64_t T, std::initializer_list<Stretch> stretches) {
  const Tensor ids = full({1, T}, -1, {DType::i32, {}});
  for (const Stretch& s : stretches) {
    for (int64_t t = s.begin; t < s.end; ++t) ids.data<int32_t>()[t] = int32_t(s.expert);
  }
  return ids;
}

TEST(CostModel, WorkIsCountedTileByTile) {
  using enum Expert;
  const struct {
    Tensor ids;
    Row work;
  } cases[] = {
      {routes(7, {}), {0, 0, 0}},
      {routes(7, {{2, 3, full}}), {3, 0, 0}},
      {routes(7, {{2, 3, linear}}), {0, 1, 0}},
      {routes(7, {{2, 3, window}}), {0, 0, 5}},
      // A tile holds 64 ids; the 65th opens one that ends at position 64.
      {routes(70, {{0, 64, full}}), {64, 0, 0}},
      {routes(70, {{0, 65, full}}), {64 + 65, 0, 0}},
      {routes(70, {{0, 64, window}}), {0, 0, 63 + 5}},
      {routes(70, {{0, 65, window}}), {0, 0, 63 + 5 + 5}},
      {routes(70, {{0, 65, linear}}), {0, 65, 0}},
      // Clustered and apart: the same ten tokens in a narrow and in a wide tile.
      {routes(200, {{100, 110, window}}), {0, 0, 9 + 5}},
      {routes(200, {{0, 5, window}, {195, 200, window}}), {0, 0, 199 + 5}},
      // Others in between do not end a tile.
      {routes(200, {{10, 40, full}, {40, 150, linear}, {150, 184, full}, {190, 191, full}}),
       {184 + 191, 110, 0}},
  };
  for (const auto& c : cases) EXPECT_EQ(route_work(c.ids, kWindow), c.work);
}

TEST(CostModel, TilesEndWithTheirRow) {
  const Tensor ids = constant_routes(2, 40, Expert::full);
  EXPECT_EQ(route_work(ids, kWindow), (Row{80, 0, 0}));
  EXPECT_EQ(route_work(constant_routes(2, 40, Expert::window), kWindow), (Row{0, 0, 2 * (39 + 5)}));
  // The second row alone: positions count from its own start.
  for (int64_t t = 0; t < 40; ++t) ids.data<int32_t>()[t] = -1;
  EXPECT_EQ(route_work(ids, kWindow), (Row{40, 0, 0}));
}

TEST(CostModel, PredictsBasePlusSlopeTimesWork) {
  const AttentionCostModel model{.base = {3, 0.25, 7}, .slope = {0.5, 2, 0.125}};
  using enum Expert;
  const Tensor ids = routes(20, {{0, 4, full}, {4, 10, linear}, {12, 20, window}});
  // The state of linear attention passes over all 20 tokens, whoever asks for it.
  EXPECT_EQ(
      model.predict(ids, kWindow),
      (Row{3 + 0.5 * 4, 0.25 * 20 + 2 * 6, 7 + 0.125 * (19 - 12 + 5)}));
  EXPECT_EQ(model.predict(routes(20, {{0, 1, linear}}), kWindow), (Row{0, 0.25 * 20 + 2, 0}));
  EXPECT_EQ(model.predict(routes(20, {}), kWindow), Row{}) << "no token, no time";
}

TEST(CostModel, FitsALineExactly) {
  const std::vector<CostSample> samples = {{10, 8}, {20, 13}, {50, 28}, {4, 5}};
  const CostLine line = fit_line(samples);
  EXPECT_NEAR(line.base, 3, 1e-9);
  EXPECT_NEAR(line.slope, 0.5, 1e-10);
}

// With relative errors e = (base + slope x - y) / y the fit is where the sums of e / y and e x / y
// are 0.
TEST(CostModel, FitsErrorsInPercent) {
  const std::vector<CostSample> samples = {{1, 4}, {2, 3.5}, {10, 9}, {40, 30}};
  const CostLine line = fit_line(samples);
  double by_base = 0;
  double by_slope = 0;
  for (const CostSample& s : samples) {
    const double error = (line.base + line.slope * s.work - s.milliseconds) / s.milliseconds;
    by_base += error / s.milliseconds;
    by_slope += error * s.work / s.milliseconds;
  }
  EXPECT_GT(line.base, 0);
  EXPECT_GT(line.slope, 0);
  EXPECT_NEAR(by_base, 0, 1e-12);
  EXPECT_NEAR(by_slope, 0, 1e-12);
}

TEST(CostModel, NeitherConstantIsNegative) {
  // The line through these meets 0 at -1; through the origin the slope is
  // sum(x / y) / sum(x^2 / y^2).
  const std::vector<CostSample> steep = {{1, 0.5}, {2, 2}, {4, 5}};
  const CostLine through_origin = fit_line(steep);
  EXPECT_EQ(through_origin.base, 0);
  EXPECT_NEAR(through_origin.slope, (2 + 1 + 0.8) / (4 + 1 + 0.64), 1e-12);
  // Falling: the constant is sum(1 / y) / sum(1 / y^2).
  const std::vector<CostSample> falling = {{1, 4}, {2, 2}, {3, 1}};
  const CostLine flat = fit_line(falling);
  EXPECT_EQ(flat.slope, 0);
  EXPECT_NEAR(flat.base, (0.25 + 0.5 + 1) / (0.0625 + 0.25 + 1), 1e-12);
  const std::vector<CostSample> one = {{5, 2}};
  EXPECT_EQ(fit_line(one).slope, 0);
  EXPECT_NEAR(fit_line(one).base, 2, 1e-12);
}

}  // namespace
}  // namespace sluice
