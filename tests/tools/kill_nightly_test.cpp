// Runs that are killed again and again, at random moments and in the middle of checkpoints, until
// nothing is left to do: they end with the bytes of a run that was left alone.
#include <csignal>
#include <set>

#include <fmt/format.h>

#include "tests/support/fuzz.h"
#include "tests/tools/resume_fixture.h"

namespace sluice::testing {
namespace {

class KillTest : public ResumeTest {
 protected:
  /// True when a checkpoint that this process was writing is not complete.
  bool has_part(pid_t child, const std::string& name) const {
    const std::string ending = fmt::format(".{}", child);
    std::error_code not_there_yet;
    for (const auto& entry : fs::directory_iterator(folder_ / name, not_there_yet)) {
      const std::string file = entry.path().filename().string();
      if (file.starts_with(".checkpoint-") && file.ends_with(ending)) return true;
    }
    return false;
  }

  /// Nothing but what a run that was left alone has. A kill while config.json is written leaves a
  /// temporary file beside it, which nothing reads.
  void expect_tidy(const std::string& name) const {
    const std::set<std::string> known = {"config.json", "metrics.jsonl", "timings.jsonl"};
    const std::set<std::string> parts = {
        "model.safetensors", "optimiser.safetensors", "state.json"};
    int checkpoints = 0;
    for (const auto& entry : fs::directory_iterator(folder_ / name)) {
      const std::string file = entry.path().filename().string();
      if (!file.starts_with("checkpoint-")) {
        EXPECT_TRUE(known.contains(file) || file.starts_with("config.json.tmp-")) << file;
        continue;
      }
      ++checkpoints;
      std::set<std::string> found;
      for (const auto& part : fs::directory_iterator(entry.path())) {
        found.insert(part.path().filename().string());
      }
      EXPECT_EQ(found, parts) << file;
    }
    EXPECT_EQ(checkpoints, 2);
  }
};

TEST_F(KillTest, KilledUntilDoneEndsLikeAnUninterruptedRun) {
  finish("whole");
  int kills = 0;
  int cut = 0;
  const bool all = for_each_fuzz_case(4, [&](Random& random) {
    const std::string name = "killed" + std::to_string(random.bits());
    // An attempt may come no further than the one before; the last run goes to the end in any case.
    for (int attempt = 0; attempt < 60; ++attempt) {
      const pid_t child = start(name, int(random.between(1, 2)));
      if (random.chance(0.5)) {
        while (!has_part(child, name) && !has_ended(child)) {
          std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
        std::this_thread::sleep_for(std::chrono::microseconds(random.below(1500)));
      } else {
        reaches(child, name, lines(name) + random.between(0, 12));
        std::this_thread::sleep_for(std::chrono::microseconds(random.below(5000)));
      }
      ::kill(child, SIGKILL);
      const Ending ending = wait(child, name);
      if (!ending.killed) {
        ASSERT_EQ(ending.status, 0) << ending.errors;
        break;
      }
      ++kills;
      cut += has_part(child, name) ? 1 : 0;
    }
    finish(name);
    expect_equal_runs("whole", name);
    expect_tidy(name);
  });
  if (!all) return;
  EXPECT_GE(kills, 20) << "the run is too short to be killed";
  EXPECT_GE(cut, 4) << "no kill met a checkpoint";
  std::cout << kills << " kills, " << cut << " of them in a checkpoint" << std::endl;
}

}  // namespace
}  // namespace sluice::testing
