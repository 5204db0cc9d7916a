// Runs that are killed, stopped or out of disk, and then resumed, end with the bytes of a run that
// was left alone.
#include <csignal>

#include <sys/resource.h>

#include "engine/philox.h"
#include "tests/tools/resume_fixture.h"

namespace sluice::testing {
namespace {

TEST_F(ResumeTest, KilledRunsEndLikeUninterruptedOnes) {
  finish("whole");
  int kills = 0;
  // A kill right after these lines falls before, between and after checkpoints of every seventh
  // step; a resumed run drops the lines past its checkpoint, so later counts are still ahead.
  for (const int64_t count : {3, 16, 17, 43, 71, 100}) {
    const pid_t child = start("killed", 1);
    reaches(child, "killed", count);
    const auto word = philox4x32({1, 0}, uint64_t(count))[0];
    std::this_thread::sleep_for(std::chrono::microseconds(word % 3000));
    ::kill(child, SIGKILL);
    const Ending ending = wait(child, "killed");
    if (!ending.killed) {
      ASSERT_EQ(ending.status, 0) << ending.errors;
      break;
    }
    ++kills;
  }
  finish("killed");
  EXPECT_GE(kills, 2) << "the run is too short to be killed";
  expect_equal_runs("whole", "killed");
}

TEST_F(ResumeTest, SigtermSavesAndExitsWithZeroAndThreadsDoNotMatter) {
  finish("whole");
  int stops = 0;
  for (const int64_t count : {5, 30, 60}) {
    const pid_t child = start("stopped", 1 + stops % 2);
    reaches(child, "stopped", count);
    ::kill(child, stops % 2 == 0 ? SIGTERM : SIGINT);
    const Ending ending = wait(child, "stopped");
    // The handler stands before the first line is written.
    ASSERT_EQ(ending.status, 0) << ending.errors;
    if (fs::exists(folder_ / "stopped/checkpoint-00000120")) break;
    ++stops;
  }
  finish("stopped");
  EXPECT_GE(stops, 1);
  expect_equal_runs("whole", "stopped");
}

TEST_F(ResumeTest, AFullDiskIsReportedAndHarmless) {
  finish("whole");
  // A limit on the size of files stands for the full disk: the first checkpoint fits no more.
  const pid_t child = start("full", 1, [] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{8192, 8192};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  });
  const Ending ending = wait(child, "full");
  EXPECT_EQ(ending.status, 1);
  EXPECT_NE(ending.errors.find("sluice: "), std::string::npos) << ending.errors;
  EXPECT_NE(ending.errors.find("File too large"), std::string::npos) << ending.errors;
  finish("full");
  expect_equal_runs("whole", "full");
}

}  // namespace
}  // namespace sluice::testing
