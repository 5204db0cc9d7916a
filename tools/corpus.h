// Texts to train on, made from what every Debian machine has.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::tools {

struct CorpusLimits {
  int64_t bytes = 12'000'000;  ///< whole records until the next one would pass this
  uint64_t seed = 1;           ///< of the order of the records
};

/// The records of `apt-cache dumpavail`, one after another with an empty line between them, in an
/// order that depends on the set of records and the seed only. Left out: the fields that hold
/// hashes and sizes, which nothing can predict, and records without a Filename, which are known to
/// this machine only.
/// Throws ArgumentError when no record is left.
std::string package_records(std::string_view dump, const CorpusLimits& limits);

/// The synsets of WordNet's data files as lines "word, word: gloss", in a seeded order.
/// Throws ArgumentError when no line is left.
std::string wordnet_glosses(std::span<const std::string> data_files, const CorpusLimits& limits);

/// Sorts, drops repeated records, shuffles by the seed, and joins as many as the limit takes.
std::string join_shuffled(std::vector<std::string> records, const CorpusLimits& limits);

}  // namespace sluice::tools
