// Progress lines on a terminal and in a log, with the clock given by the test.
#include "models/progress.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Progress, Numbers) {
  EXPECT_EQ(short_number(340), "340");
  EXPECT_EQ(short_number(12345), "12.3k");
  EXPECT_EQ(short_number(1234567), "1.2M");
  EXPECT_EQ(short_time(0), "0:00");
  EXPECT_EQ(short_time(191.2), "3:12");
  EXPECT_EQ(short_time(3753), "1:02:33");
}

/// What a Progress wrote, given times in seconds at which steps end.
std::string written(bool terminal, const std::vector<double>& seconds) {
  const auto begin = Progress::Clock::time_point();
  const auto at = [begin](double s) {
    return begin +
           std::chrono::duration_cast<Progress::Clock::duration>(std::chrono::duration<double>(s));
  };
  char* text = nullptr;
  size_t size = 0;
  std::FILE* const stream = ::open_memstream(&text, &size);
  Progress progress(
      {.name = "run", .total = 4, .units_per_step = 1000, .terminal = terminal, .output = stream},
      at(0));
  for (size_t i = 0; i < seconds.size(); ++i) {
    progress.update(int64_t(i) + 1, "loss 1.0", at(seconds[i]));
  }
  progress.finish(at(seconds.back()));
  std::fclose(stream);
  std::string result(text, size);
  std::free(text);
  return result;
}

TEST(Progress, ALogGetsALineAMinuteAndTheLast) {
  EXPECT_EQ(
      written(false, {30, 61, 100}),
      "run [##########----------] 2/4  33 tok/s  1:01 left  loss 1.0\n"
      "run [###############-----] 3/4  30 tok/s  0:34 left  loss 1.0\n");
}

TEST(Progress, ATerminalIsRedrawnFiveTimesASecond) {
  const std::string text = written(true, {0.1, 0.25, 0.3, 0.5});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 4) << text;  // start, 0.25, 0.5, end
  EXPECT_EQ(text.back(), '\n');
  EXPECT_NE(text.find("4/4  8.0k tok/s  0:01  loss 1.0"), std::string::npos) << text;
}

}  // namespace
}  // namespace sluice
