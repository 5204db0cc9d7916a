// The metrics of a run: one JSON object a line, one line a step.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace sluice {

/// Appends lines to a file. Every line has a "step", and holds nothing that depends on the clock,
/// so that a run which was interrupted and resumed ends with the same bytes.
/// Thread-safety: one thread at a time.
class MetricsLog {
 public:
  /// Opens `path`, keeping its lines up to and including `last_step` and dropping what follows:
  /// steps that are about to be done again, and a line that a kill cut short. Locks the file, so
  /// that two processes never train in one folder. Throws IoError (also when it is locked).
  MetricsLog(const std::string& path, int64_t last_step);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  /// Writes one line at once. Throws IoError (a full disk).
  void append(const nlohmann::json& line);
  /// Makes all lines durable: called before a checkpoint that counts on them. Throws IoError.
  void sync();

 private:
  [[noreturn]] void fail(const char* action) const;

  std::string path_;
  int descriptor_;
};

}  // namespace sluice
