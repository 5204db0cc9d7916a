// `sluice corpus` and `sluice demo` from a dump of packages to the report.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include "models/evaluate.h"
#include "models/text_data.h"
#include "tests/support/temporary_folder.h"
#include "tools/command_line.h"
#include "tools/load_model.h"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Ending {
  int status;
  std::string output;
  std::string errors;
};

Ending run(const std::vector<std::string>& arguments) {
  std::vector<const char*> pointers = {"sluice"};
  for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int status = run_command_line(int(pointers.size()), pointers.data());
  const std::string output = ::testing::internal::GetCapturedStdout();
  return {status, output, ::testing::internal::GetCapturedStderr()};
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
  return found;
}

constexpr const char* kPlan = R"({
  "title": "A tiny plan", "evaluate_windows": 4, "timing_batches": 2,
  "base": {
    "model": {"layers": 2, "width": 16, "heads": 2, "context": 64, "window": 4,
              "controller_width": 8, "layer_kinds": ["window", "full"]},
    "data": {"held_out": 0.2},
    "train": {"steps": 4, "batch": 2, "tokens": 64, "warmup": 1}},
  "runs": [
    {"name": "static"},
    {"name": "routed", "start_from": "static",
     "changes": {"model": {"layer_kinds": ["routed"]}}}],
  "rows": [
    {"title": "the control", "run": "static", "role": "control"},
    {"title": "routed, hard", "run": "routed", "mode": "hard", "role": "routed"},
    {"title": "routed, prior", "run": "routed", "mode": "prior"}]})";

TEST(DemoCommand, FromADumpToTheReport) {
  const testing::TemporaryFolder folder;
  {
    std::ofstream dump(folder / "dump");
    for (int i = 0; i < 120; ++i) {
      dump << "Package: p" << i << "\nVersion: 1\nSize: 77\nFilename: pool/p" << i << "\n\n";
    }
    std::ofstream(folder / "plan.json") << kPlan;
  }
  const std::string text = folder / "text";
  const Ending corpus = run(
      {"corpus",
       "packages",
       "--input",
       folder / "dump",
       "--out",
       text,
       "--bytes",
       "4000",
       "--json"});
  ASSERT_EQ(corpus.status, 0) << corpus.errors;
  const std::string records = contents(text);
  EXPECT_EQ(json::parse(corpus.output).at("bytes"), records.size());
  EXPECT_LE(records.size(), 4000u);
  EXPECT_GT(records.size(), 3900u);
  EXPECT_EQ(count(records, "Package: p"), count(records, "\nFilename: pool/p"));
  EXPECT_EQ(records.find("Size:"), std::string::npos);

  const std::string out = folder / "out";
  const std::vector<std::string> command = {
      "demo",
      "--plan",
      folder / "plan.json",
      "--text",
      text,
      "--out",
      out,
      "--results",
      folder / "results"};
  const Ending first = run(command);
  ASSERT_EQ(first.status, 0) << first.errors;
  const std::string report = contents(out + "/report.md");
  const json results = json::parse(contents(out + "/results.json"));
  EXPECT_TRUE(first.output.starts_with(report)) << first.output;
  const std::string line = report.substr(0, report.find('\n'));
  EXPECT_TRUE(line.starts_with("Routing ")) << line;
  EXPECT_TRUE(line.ends_with(" ms of attention and controller per forward pass.")) << line;
  EXPECT_EQ(results.at("verdict"), line);
  EXPECT_NE(report.find("\n# A tiny plan\n"), std::string::npos);
  EXPECT_NE(report.find("\n## A held-out record, marked by expert\n\n```\n"), std::string::npos);
  for (const char* file : {"/report.md", "/results.json"}) {
    EXPECT_EQ(contents(folder / ("results" + std::string(file))), contents(out + file)) << file;
  }

  const json rows = results.at("rows");
  ASSERT_EQ(rows.size(), 3u);
  const TextData data = read_text(text, 0.2);
  const struct {
    const char* title;
    const char* run;
    RouteMode mode;
  } expected[] = {
      {"the control", "static", RouteMode::hard},
      {"routed, hard", "routed", RouteMode::hard},
      {"routed, prior", "routed", RouteMode::prior}};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(rows[i].at("title"), expected[i].title);
    EXPECT_EQ(rows[i].at("run"), expected[i].run);
    EXPECT_EQ(count(report, "| " + std::string(expected[i].title) + " |"), 3u) << "three tables";
    const LoadedModel loaded = load_model(out + "/" + expected[i].run + "-1");
    EXPECT_EQ(loaded.step, 4);
    const Evaluation evaluation = evaluate(
        *loaded.model, data.held_out(), {.mode = expected[i].mode, .tokens = 64, .windows = 4});
    EXPECT_EQ(rows[i].at("seeds").at(0).at("loss"), evaluation.loss) << expected[i].title;
  }

  // Again: nothing is trained, and what does not depend on the clock is the same.
  const auto state = [&](const char* name) {
    return fs::last_write_time(out + "/" + name + "-1/checkpoint-00000004/state.json");
  };
  const auto before = std::pair(state("static"), state("routed"));
  const Ending second = run(command);
  ASSERT_EQ(second.status, 0) << second.errors;
  EXPECT_EQ(count(first.errors, "finished before"), 0u) << first.errors;
  EXPECT_EQ(count(second.errors, "finished before"), 2u) << second.errors;
  EXPECT_EQ(std::pair(state("static"), state("routed")), before);
  const json again = json::parse(contents(out + "/results.json"));
  for (size_t i = 0; i < 3; ++i) {
    for (const char* key : {"loss", "value_loss", "layers", "windows"}) {
      EXPECT_EQ(again.at("rows")[i].at("seeds")[0].at(key), rows[i].at("seeds")[0].at(key)) << key;
    }
  }
}

}  // namespace
}  // namespace sluice::tools
