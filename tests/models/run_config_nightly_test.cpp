// Random damage to configurations: each is read, and then survives writing and reading, or is an
// ArgumentError that says why.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/errors.h"
#include "models/run_config.h"
#include "tests/models/damage.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using nlohmann::json;
using testing::damage;
using testing::for_each_fuzz_case;
using testing::Random;

json valid_config() {
  return json::parse(R"({
      "model": {"layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "context": 64, "window": 8,
                "layer_kinds": ["routed", "full"], "random_shares": [0.2, 0.3, 0.5],
                "costs": "table", "cost_table": [3, 1, 2], "target_cost": 0.4,
                "warm_kinds": ["linear", "window"], "warm_evidence": 2.5,
                "phases": [{"until": 0.3, "mode": "warm"},
                           {"until": 0.6, "mode": "soft", "sharpness": 2},
                           {"until": 1, "mode": "straight_through", "hold_cost": true}]},
      "data": {"text": "a.txt", "held_out": 0.1, "value_fields": ["X: "], "given_fields": []},
      "train": {"steps": 70, "batch": 3, "tokens": 64, "warmup": 2, "decay": "wsd", "seed": 5,
                "checkpoint_every": 9}})");
}

/// True when it is read.
bool read_or_refuse(const json& document) {
  RunConfig config;
  try {
    config = run_config_from_json(document);
  } catch (const ArgumentError& error) {
    EXPECT_GT(std::string(error.what()).size(), 15u) << error.what();
    return false;
  }
  const json written = to_json(config);
  EXPECT_EQ(to_json(run_config_from_json(written)), written);
  EXPECT_EQ(json::parse(written.dump()), written);
  EXPECT_TRUE(differences(written, json::parse(written.dump(2))).empty());
  return true;
}

TEST(RunConfigFuzz, DamagedValuesAreReadOrRefused) {
  int taken = 0;
  const bool all = for_each_fuzz_case(20000, [&](Random& random) {
    json document = valid_config();
    for (int64_t times = random.between(1, 3); times > 0; --times) damage(random, document);
    SCOPED_TRACE(document.dump());
    taken += read_or_refuse(document) ? 1 : 0;
  });
  EXPECT_TRUE(!all || (taken > 1000 && taken < 19000)) << taken;
}

TEST(RunConfigFuzz, DamagedFilesAreReadOrRefused) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "config.json";
  int taken = 0;
  const bool all = for_each_fuzz_case(5000, [&](Random& random) {
    std::string text = valid_config().dump();
    for (int64_t times = random.between(1, 2); times > 0; --times) {
      const size_t at = random.below(text.size());
      if (random.chance(0.5))
        text[at] = random.chance(0.7) ? random.pick(text) : char(random.below(256));
      else
        text.erase(at, 1 + random.below(random.chance(0.5) ? 2 : text.size()));
      if (text.empty()) break;
    }
    SCOPED_TRACE(text);
    std::filesystem::remove(path);  // file systems flush a file that is truncated and rewritten
    std::ofstream(path, std::ios::binary) << text;
    json document;
    try {
      document = read_json(path);
    } catch (const ArgumentError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with(path + ": is not JSON")) << error.what();
      return;
    }
    taken += read_or_refuse(document) ? 1 : 0;
  });
  EXPECT_TRUE(!all || taken > 40) << taken;
}

TEST(RunConfigFuzz, OverridesAreAppliedOrRefused) {
  for_each_fuzz_case(5000, [&](Random& random) {
    std::string assignment;
    for (int64_t parts = random.between(0, 7); parts > 0; --parts) {
      assignment += random.pick(
          {"train", "model", ".", ".", "steps", "=", "=", "7", "[", "]", "{\"a\":", "\"", "1e999"});
    }
    SCOPED_TRACE(assignment);
    json document = valid_config();
    try {
      apply_override(document, assignment);
    } catch (const ArgumentError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("--set")) << error.what();
      return;
    }
    read_or_refuse(document);
  });
}

}  // namespace
}  // namespace sluice
