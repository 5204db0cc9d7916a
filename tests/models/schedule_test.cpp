// Learning rates at the corners of each schedule.
#include "models/schedule.h"

#include "engine/errors.h"
#include "tests/support/compare.h"

namespace sluice {
namespace {

TEST(Schedule, RatesAtTheCorners) {
  const ScheduleOptions cosine{
      .decay = Decay::cosine, .peak = 2, .steps = 111, .warmup = 10, .final_fraction = 0.1};
  ScheduleOptions wsd = cosine;
  wsd.decay = Decay::wsd;
  wsd.decay_fraction = 20.0 / 111;
  ScheduleOptions constant = cosine;
  constant.decay = Decay::constant;
  const struct {
    const char* what;
    const ScheduleOptions& options;
    int64_t step;
    double rate;
  } cases[] = {
      {"first warm-up step", cosine, 0, 0.2},
      {"last warm-up step", cosine, 9, 2},
      {"cosine begins at the peak", cosine, 10, 2},
      {"cosine half way", cosine, 60, 1.1},
      {"cosine ends at the final rate", cosine, 110, 0.2},
      {"wsd is flat", wsd, 50, 2},
      {"wsd flat to the last", wsd, 90, 2},
      {"wsd half way down", wsd, 100, 1.1},
      {"wsd ends at the final rate", wsd, 110, 0.2},
      {"constant to the end", constant, 110, 2},
  };
  for (const auto& c : cases) {
    EXPECT_NEAR(learning_rate(c.options, c.step), c.rate, 1e-12) << c.what;
  }
}

TEST(Schedule, SingleStepRuns) {
  for (const Decay decay : {Decay::constant, Decay::cosine, Decay::wsd}) {
    EXPECT_EQ(learning_rate({.decay = decay, .peak = 1, .steps = 1}, 0), 1);
  }
}

TEST(Schedule, Throws) {
  const ScheduleOptions ok{.steps = 10, .warmup = 2};
  SLUICE_EXPECT_THROW(
      learning_rate(ok, 10), ArgumentError, "learning_rate: step must be in [0, 10), got 10");
  SLUICE_EXPECT_THROW(learning_rate(ok, -1), ArgumentError, "got -1");
  ScheduleOptions bad = ok;
  bad.warmup = 10;
  SLUICE_EXPECT_THROW(
      learning_rate(bad, 0), ArgumentError, "warmup must be in [0, steps = 10), got 10");
  bad = ok;
  bad.final_fraction = 1.5;
  SLUICE_EXPECT_THROW(learning_rate(bad, 0), ArgumentError, "must be in [0, 1], got 1.5 and 0.2");
}

}  // namespace
}  // namespace sluice
