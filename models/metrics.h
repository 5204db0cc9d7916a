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
  /// that two processes never train in one folder. Throws IoError (also when it is locked, or when
  /// a JSON object in it has no integer "step": then it is no file of metrics and stays as it is).
  MetricsLog(const std::string& path, int64_t last_step);

  /// Writes one line at once. Throws IoError (a full disk).
  void append(const nlohmann::json& line);
  /// Makes all lines durable: called before a checkpoint that counts on them. Throws IoError.
  void sync();

 private:
  [[noreturn]] void fail(const char* action) const;

  /// An open file, and the lock on it.
  struct Descriptor {
    explicit Descriptor(int opened) : number(opened) {}
    ~Descriptor();
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    const int number;
  };

  std::string path_;
  Descriptor descriptor_;
};

}  // namespace sluice
