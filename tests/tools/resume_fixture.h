// Training runs as processes of their own, on one small text and configuration.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/temporary_folder.h"

namespace sluice::testing {

namespace fs = std::filesystem;

inline std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Ending {
  bool killed = false;
  int status = -1;
  std::string errors;
};

class ResumeTest : public ::testing::Test {
 protected:
  ResumeTest() {
    std::ofstream text(folder_ / "text");
    for (int i = 0; i < 400; ++i) text << "Package: p" << i << "\nFilename: pool/p" << i << "\n\n";
    std::ofstream(folder_ / "config.json") << R"({
      "model": {"layers": 2, "width": 16, "heads": 2, "context": 32, "window": 4,
                "controller_width": 8, "target_cost": 0.5, "phases": [
                  {"until": 0.4, "mode": "soft"},
                  {"until": 1.0, "mode": "straight_through", "hold_cost": true}]},
      "data": {"held_out": 0.1},
      "train": {"steps": 120, "batch": 2, "accumulation": 2, "tokens": 32, "warmup": 5,
                "checkpoint_every": 7, "statistics_every": 3, "evaluate_every": 25,
                "evaluate_windows": 3}})";
  }

  /// Starts `sluice train` on the folder `name`; in the child, `prepare` runs first.
  pid_t start(const std::string& name, int threads, void (*prepare)() = nullptr) const {
    const std::string config = (folder_ / "config.json").string();
    const std::string text = (folder_ / "text").string();
    const std::string out = (folder_ / name).string();
    const std::string errors = (folder_ / (name + ".errors")).string();
    const std::string count = std::to_string(threads);
    const std::array<const char*, 13> arguments = {
        SLUICE_PROGRAM,
        "train",
        "--config",
        config.c_str(),
        "--text",
        text.c_str(),
        "--out",
        out.c_str(),
        "--resume",
        "--threads",
        count.c_str(),
        "--json",
        nullptr};
    const pid_t child = ::fork();
    if (child == 0) {
      std::signal(SIGINT, SIG_DFL);  // a script's background jobs inherit it ignored
      if (prepare != nullptr) prepare();
      const int log = ::open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
      const int null = ::open("/dev/null", O_WRONLY);
      ::dup2(null, STDOUT_FILENO);
      ::dup2(log, STDERR_FILENO);
      ::execv(SLUICE_PROGRAM, const_cast<char* const*>(arguments.data()));
      ::_exit(127);
    }
    return child;
  }

  Ending wait(pid_t child, const std::string& name) const {
    int status = 0;
    ::waitpid(child, &status, 0);
    return {
        WIFSIGNALED(status) != 0,
        WIFEXITED(status) ? WEXITSTATUS(status) : -1,
        contents(folder_ / (name + ".errors"))};
  }

  void finish(const std::string& name, int threads = 1) const {
    const Ending ending = wait(start(name, threads), name);
    ASSERT_EQ(ending.status, 0) << ending.errors;
  }

  void expect_equal_runs(const std::string& a, const std::string& b) const {
    for (const char* file :
         {"metrics.jsonl",
          "checkpoint-00000120/model.safetensors",
          "checkpoint-00000120/optimiser.safetensors",
          "checkpoint-00000120/state.json"}) {
      const std::string expected = contents(folder_ / a / file);
      ASSERT_FALSE(expected.empty()) << file;
      EXPECT_TRUE(contents(folder_ / b / file) == expected) << file << " of " << b << " differs";
    }
    for (const auto& entry : fs::directory_iterator(folder_ / b)) {
      EXPECT_FALSE(entry.path().filename().string().starts_with('.')) << entry.path();
    }
  }

  /// Lines of the run's metrics: steps that it began to record.
  int64_t lines(const std::string& name) const {
    const std::string text = contents(folder_ / name / "metrics.jsonl");
    return std::count(text.begin(), text.end(), '\n');
  }

  /// True when `wait` would return at once.
  static bool has_ended(pid_t child) {
    siginfo_t ended{};
    ::waitid(P_PID, id_t(child), &ended, WEXITED | WNOHANG | WNOWAIT);
    return ended.si_pid == child;
  }

  /// Waits until the run has recorded `count` lines, or has ended; true in the first case. Counting
  /// steps instead of milliseconds makes the number of kills independent of the machine's speed.
  bool reaches(pid_t child, const std::string& name, int64_t count) const {
    while (lines(name) < count) {
      if (has_ended(child)) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

}  // namespace sluice::testing
