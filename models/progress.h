// Progress of a long job on a terminal or in a log.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace sluice {

/// Draws "name [#####-----] 120/3000  12.3k tok/s  3:12 left  TEXT". On a terminal the line is
/// redrawn at most five times a second; elsewhere a line is written at most once a minute, and the
/// last one.
/// Thread-safety: one thread at a time.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  struct Options {
    std::string name;
    int64_t total = 0;           ///< steps of the whole job
    int64_t done = 0;            ///< of those, before this process: no part of the speed
    int64_t units_per_step = 0;  ///< shown as speed in `unit`; 0: no speed
    std::string unit = "tok/s";
    bool terminal = false;
    std::FILE* output = stderr;
  };
  explicit Progress(Options options, Clock::time_point now = Clock::now());
  /// Ends the line of a job that failed, so that its message gets one of its own.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` steps are done; `text` describes the last one.
  void update(int64_t done, const std::string& text, Clock::time_point now = Clock::now());
  /// Writes the last state and ends the line. Called once, also when the job stops early.
  void finish(Clock::time_point now = Clock::now());

 private:
  std::string line(Clock::time_point now) const;
  void draw(Clock::time_point now);

  Options options_;
  Clock::time_point begin_;
  Clock::time_point drawn_;
  int64_t done_;
  std::string text_;
  bool finished_ = false;
};

/// "12.3k", "1.2M", "340".
std::string short_number(double value);
/// "3:12", "1:02:33".
std::string short_time(double seconds);
/// Whether `file` is a terminal.
bool is_terminal(std::FILE* file);

}  // namespace sluice
