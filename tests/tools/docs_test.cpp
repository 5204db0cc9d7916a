// docs/configuration.md names every key that a run has.
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include <gtest/gtest.h>

#include "models/run_config.h"

namespace sluice {
namespace {

TEST(Docs, EveryKeyIsDescribedInItsPart) {
  std::ifstream file(std::string(SLUICE_ROOT) + "/docs/configuration.md");
  std::ostringstream contents;
  contents << file.rdbuf();
  const std::string text = contents.str();
  const nlohmann::json config = to_json(RunConfig{});
  for (const auto& part : config.items()) {
    const size_t begin = text.find("\n## " + part.key() + "\n");
    ASSERT_NE(begin, std::string::npos) << part.key();
    const std::string section = text.substr(begin, text.find("\n## ", begin + 1) - begin);
    for (const auto& field : part.value().items()) {
      EXPECT_NE(section.find("`" + field.key() + "`"), std::string::npos)
          << part.key() << "." << field.key() << " is not described";
    }
  }
}

}  // namespace
}  // namespace sluice
