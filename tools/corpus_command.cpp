// `sluice corpus`: writes one of the built-in texts.
#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/errors.h"
#include "engine/file.h"
#include "tools/commands.h"
#include "tools/corpus.h"

namespace sluice::tools {
namespace {

std::string read_file(const std::string& path) { return std::string(MappedFile(path).text()); }

/// What apt knows about every package of its lists; its warnings go where this program's go.
std::string apt_dump() {
  std::FILE* const pipe = ::popen("LC_ALL=C apt-cache dumpavail", "r");
  SLUICE_CHECK(pipe != nullptr, IoError, "corpus: cannot run apt-cache");
  std::string text;
  std::array<char, 65536> buffer;
  for (size_t got = 1; got > 0;) {
    got = std::fread(buffer.data(), 1, buffer.size(), pipe);
    text.append(buffer.data(), got);
  }
  const int status = ::pclose(pipe);
  SLUICE_CHECK(
      status == 0,
      IoError,
      "corpus: apt-cache dumpavail failed; give a saved dump with --input, or train on another "
      "text");
  return text;
}

std::vector<std::string> wordnet_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const char* part : {"noun", "verb", "adj", "adv"}) {
    try {
      files.push_back(read_file(folder + "/data." + part));
    } catch (const IoError& error) {
      throw IoError(fmt::format("{} (Debian package wordnet-base)", error.what()));
    }
  }
  return files;
}

}  // namespace

void run_corpus(const CorpusCommand& command, const CommonOptions& common) {
  const CorpusLimits limits{.bytes = command.bytes, .seed = common.seed.value_or(1)};
  const bool packages = command.source == "packages";
  const std::string folder = command.input.empty() ? "/usr/share/wordnet" : command.input;
  const std::string text =
      packages
          ? package_records(command.input.empty() ? apt_dump() : read_file(command.input), limits)
          : wordnet_glosses(wordnet_files(folder), limits);
  AtomicFile file(command.output);
  file.write(text);
  file.commit();
  if (common.json) {
    const nlohmann::json result = {
        {"output", command.output}, {"source", command.source}, {"bytes", text.size()}};
    fmt::print("{}\n", result.dump());
  } else {
    fmt::print("{}: {} bytes of {}\n", command.output, text.size(), command.source);
  }
}

}  // namespace sluice::tools
