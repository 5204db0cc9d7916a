// See corpus.h.
#include "tools/corpus.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "engine/errors.h"
#include "engine/philox.h"

namespace sluice::tools {
namespace {

// Hashes and numbers without a pattern: bytes that cost every model the same and teach none.
// Ghc-Package ends in a hash of the package's interface.
constexpr std::array<std::string_view, 9> kDroppedFields = {
    "MD5sum",
    "SHA1",
    "SHA256",
    "SHA512",
    "Size",
    "Installed-Size",
    "Description-md5",
    "Build-Ids",
    "Ghc-Package"};

constexpr uint64_t kShuffleStream = 0x73687566666c65;  // "shuffle"

/// Cuts the next line, without its break, off the front of `text`.
std::string_view next_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

bool dropped(std::string_view line) {
  const std::string_view name = line.substr(0, line.find(':'));
  return std::find(kDroppedFields.begin(), kDroppedFields.end(), name) != kDroppedFields.end();
}

/// "00002724 29 v 01 choke 0 002 ... | gloss" as "choke: gloss"; "" when the line is no synset.
std::string gloss_line(std::string_view line) {
  const size_t bar = line.find(" | ");
  if (bar == std::string_view::npos || line[0] == ' ') return "";
  std::string_view fields = line.substr(0, bar);
  const auto next_field = [&fields] {
    const size_t end = std::min(fields.find(' '), fields.size());
    const std::string_view field = fields.substr(0, end);
    fields.remove_prefix(std::min(end + 1, fields.size()));
    return field;
  };
  for (int skipped = 0; skipped < 3; ++skipped) next_field();  // offset, file number, type
  const std::string_view count = next_field();
  int words = 0;
  std::from_chars(count.data(), count.data() + count.size(), words, 16);
  std::string text;
  for (int word = 0; word < words; ++word) {
    text += (word == 0 ? "" : ", ") + std::string(next_field());
    next_field();  // number of the sense
  }
  std::replace(text.begin(), text.end(), '_', ' ');
  std::string_view gloss = line.substr(bar + 3);
  gloss = gloss.substr(0, gloss.find_last_not_of(' ') + 1);
  return text + ": " + std::string(gloss) + "\n";
}

}  // namespace

std::string join_shuffled(std::vector<std::string> records, const CorpusLimits& limits) {
  std::sort(records.begin(), records.end());
  records.erase(std::unique(records.begin(), records.end()), records.end());
  for (size_t left = records.size(); left > 1; --left) {
    const auto word = philox4x32({limits.seed, kShuffleStream}, left);
    const uint64_t bits = (uint64_t{word[1]} << 32) | word[0];
    std::swap(records[left - 1], records[bits % left]);
  }
  std::string text;
  for (const std::string& record : records) {
    if (static_cast<int64_t>(text.size() + record.size()) > limits.bytes) break;
    text += record;
  }
  return text;
}

std::string package_records(std::string_view dump, const CorpusLimits& limits) {
  std::vector<std::string> records;
  std::string record;
  bool has_filename = false;
  bool dropping = false;
  while (!dump.empty()) {
    const std::string_view line = next_line(dump);
    if (!line.empty()) {
      // A line that starts with a space continues the field above it.
      if (line[0] != ' ') dropping = dropped(line);
      has_filename = has_filename || line.starts_with("Filename: ");
      if (!dropping) record.append(line).push_back('\n');
    }
    if (line.empty() || dump.empty()) {
      if (has_filename) records.push_back(record + "\n");
      record.clear();
      has_filename = false;
    }
  }
  SLUICE_CHECK(
      !records.empty(),
      ArgumentError,
      "corpus: the package list holds no record with a Filename; run apt-get update first");
  return join_shuffled(std::move(records), limits);
}

std::string wordnet_glosses(std::span<const std::string> data_files, const CorpusLimits& limits) {
  std::vector<std::string> glosses;
  for (const std::string& file : data_files) {
    std::string_view text = file;
    while (!text.empty()) {
      std::string line = gloss_line(next_line(text));
      if (!line.empty()) glosses.push_back(std::move(line));
    }
  }
  SLUICE_CHECK(!glosses.empty(), ArgumentError, "corpus: the WordNet data files hold no synset");
  return join_shuffled(std::move(glosses), limits);
}

}  // namespace sluice::tools
