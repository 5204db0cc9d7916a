// The configuration of a run: round trip, overrides, differences, messages.
#include "models/run_config.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/errors.h"
#include "tests/support/compare.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using nlohmann::json;

RunConfig read(const char* text) { return run_config_from_json(json::parse(text)); }

TEST(RunConfig, RoundTrip) {
  const RunConfig config = read(R"({
      "model": {"layers": 2, "width": 32, "context": 64},
      "data": {"text": "a.txt", "value_fields": ["X: "]},
      "train": {"steps": 7, "warmup": 2, "tokens": 64, "decay": "wsd", "seed": 5}})");
  EXPECT_EQ(config.model.layers, 2);
  EXPECT_EQ(config.data.value_fields, (std::vector<std::string>{"X: "}));
  EXPECT_EQ(config.train.decay, Decay::wsd);
  EXPECT_EQ(config.train.batch, 2);
  EXPECT_EQ(to_json(run_config_from_json(to_json(config))), to_json(config));
}

TEST(RunConfig, OverridesReachAnyDepth) {
  json document = json::parse(R"({"train": {"steps": 7}})");
  apply_override(document, "train.steps=100");
  apply_override(document, "train.decay=cosine");
  apply_override(document, "data.text=some=file");
  apply_override(document, "model.layer_kinds=[\"window\", \"full\"]");
  EXPECT_EQ(document, json::parse(R"({"train": {"steps": 100, "decay": "cosine"},
      "data": {"text": "some=file"}, "model": {"layer_kinds": ["window", "full"]}})"));
  for (const char* bad : {"train.steps", "=3", ".a=3", "train..steps=3", "train.steps.x=1"}) {
    EXPECT_THROW(apply_override(document, bad), ArgumentError) << bad;
  }
}

TEST(RunConfig, DifferencesNameEachLeaf) {
  const json here = json::parse(R"({"model": {"layers": 2, "width": 8}, "same": [1]})");
  const json there = json::parse(R"({"model": {"layers": 3}, "same": [1]})");
  EXPECT_EQ(
      differences(here, there),
      (std::vector<std::string>{
          "model.layers: 2 here, 3 there", "model.width: 8 here, null there"}));
  EXPECT_TRUE(differences(here, here).empty());
}

TEST(RunConfig, Throws) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {R"({"trian": {}})", "unknown key trian, did you mean train?"},
      {R"({"train": {"step": 3}})", "unknown key train.step, did you mean train.steps?"},
      {R"({"data": {"txt": ""}})", "unknown key data.txt, did you mean data.text?"},
      {R"({"train": {"steps": 0}})", "train.steps must be > 0, got 0"},
      {R"({"train": {"warmup": 3000}})", "warmup must be in [0, steps = 3000), got 3000"},
      {R"({"train": {"tokens": 2048}})", "train.tokens must be in [1, model.context = 1024]"},
      {R"({"train": {"beta2": 1}})", "train.beta2 must be in [0, 1), got 1"},
      {R"({"train": {"decay": "linear"}})", "train.decay must be one of constant, cosine, wsd"},
      {R"({"data": {"held_out": 0}})", "data.held_out must be in (0, 1), got 0"},
      {R"({"model": {"vocabulary": 100}})", "model.vocabulary must be >= 256"},
      {R"({"model": {"phases": [{"mode": "soft", "until": 0.5, "hold_cost": true},
          {"mode": "hard", "hold_cost": true}]}})",
       "a phase with hold_cost must be of mode 'soft' or 'straight_through', got 'hard'"},
  };
  for (const auto& c : cases) SLUICE_EXPECT_THROW(read(c.text), ArgumentError, c.message);
}

TEST(RunConfig, ReadJsonNamesTheFile) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "config.json";
  std::ofstream(path) << "{\"a\": }";
  SLUICE_EXPECT_THROW(read_json(path), ArgumentError, path + ": is not JSON");
  SLUICE_EXPECT_THROW(read_json("/no/config.json"), IoError, "/no/config.json");
}

}  // namespace
}  // namespace sluice
