// What each command of the program `sluice` does, apart from reading its command line. A command
// prints its result on standard output (as JSON where asked) and throws sluice::Error on failure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/device.h"

namespace sluice::tools {

/// Options that every command takes.
struct CommonOptions {
  bool json = false;
  int threads = 0;  ///< 0: as many as the process may use
  std::optional<uint64_t> seed;
  Device device;
};

struct CorpusCommand {
  std::string source;  ///< "packages" or "wordnet"
  std::string output;
  std::string input;  ///< packages: a saved dump, else apt-cache is run; wordnet: the folder
  int64_t bytes = 12'000'000;
};
void run_corpus(const CorpusCommand& command, const CommonOptions& common);

}  // namespace sluice::tools
