// The plans that ship, the verdict's words, the report, the marked record.
#include <cmath>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "engine/errors.h"
#include "models/run_config.h"
#include "tests/support/compare.h"
#include "tests/support/temporary_folder.h"
#include "tools/demo_plan.h"
#include "tools/demo_report.h"
#include "tools/record_marks.h"

namespace sluice::tools {
namespace {

DemoRow row(RowRole role, const std::vector<double>& losses, double attention, double controller) {
  DemoRow made{{.title = role == RowRole::routed ? "routed" : "static", .role = role}, {}};
  for (const double loss : losses) {
    Evaluation evaluation;
    evaluation.loss = loss;
    evaluation.attention_ms = attention;
    evaluation.controller_ms = controller;
    evaluation.layers = {{.kind = "routed", .all = {0.1, 0.2, 0.7}, .value = {0.5, 0, 0.5}}};
    made.seeds.push_back(evaluation);
  }
  return made;
}

TEST(DemoReport, VerdictNamesEachOutcome) {
  const struct {
    std::vector<double> routed, control;
    double attention, controller;
    const char* words;
  } cases[] = {
      {{0.6},
       {0.7},
       4,
       1,
       "Routing beat the static control at equal measured time: 0.6000 against"},
      {{0.6}, {0.7}, 4, 1.09, "Routing beat the static control"},  // within 2 %
      {{0.6},
       {0.7},
       4,
       2,
       "did not beat the static control at equal measured time: it predicts "
       "better but takes longer"},
      {{0.8}, {0.7}, 4, 1, "did not beat the static control at equal measured time: 0.8000"},
      {{0.8}, {0.7}, 3, 1, "it is faster but predicts worse"},
      {{0.6, 0.8, 0.7}, {0.7, 0.7, 0.7}, 4, 1, "are level"},
      {{0.6, 0.8, 0.7}, {0.7, 0.7, 0.7}, 3, 1, "in less measured time"},
      {{0.6, 0.8, 0.7}, {0.7, 0.7, 0.7}, 5, 1, "equal loss within the seeds' interval, but"},
      {{0.60, 0.61, 0.62}, {0.70, 0.71, 0.72}, 4, 1, "Routing beat the static control"},
  };
  for (const auto& c : cases) {
    const std::string text = verdict(
        row(RowRole::routed, c.routed, c.attention, c.controller),
        row(RowRole::control, c.control, 5, 0));
    EXPECT_NE(text.find(c.words), std::string::npos) << text << "\nexpected: " << c.words;
  }
}

TEST(DemoReport, EstimatesUseStudentsT) {
  EXPECT_EQ(to_string(estimate({0.5}), 2), "0.50");
  // Sample deviation 1, n = 3: 4.303 / sqrt(3).
  EXPECT_EQ(to_string(estimate({1, 2, 3}), 3), "2.000 ± 2.484");
}

TEST(DemoReport, MarkdownBeginsWithTheVerdictAndHoldsTheRecord) {
  DemoResult result{.title = "A title"};
  result.rows = {row(RowRole::control, {0.7}, 5, 0), row(RowRole::routed, {0.6}, 4, 1)};
  result.facts = {"machine: x"};
  result.record = "         abc\nlayer 1  F.L\n";
  const std::string text = to_markdown(result);
  EXPECT_TRUE(text.starts_with("Routing beat the static control")) << text;
  EXPECT_NE(text.find("| routed | 0.6000 |"), std::string::npos) << text;
  EXPECT_NE(text.find("10 / 20 / 70"), std::string::npos) << text;
  EXPECT_NE(text.find("50 : 0"), std::string::npos) << text;
  EXPECT_NE(text.find("layer 1  F.L"), std::string::npos) << text;
  EXPECT_EQ(to_json(result).at("rows").size(), 2u);
}

TEST(DemoReport, ComparesWithFullAndHandMadeRows) {
  DemoResult result{.title = "A title"};
  result.rows = {row(RowRole::control, {0.7}, 5, 0), row(RowRole::routed, {0.6}, 4, 1)};
  EXPECT_EQ(to_markdown(result).find("## Against full"), std::string::npos);
  EXPECT_EQ(to_markdown(result).find("start from another run"), std::string::npos);
  result.rows.push_back(row(RowRole::other, {0.65}, 8, 0));
  result.rows.back().plan.title = "all full";
  result.rows.back().plan.kind = RunKind::all_full;
  result.rows.back().plan.continued = true;
  for (LayerShares& layer : result.rows.back().seeds[0].layers) layer.all = {1, 0, 0};
  const std::string text = to_markdown(result);
  EXPECT_NE(
      text.find(
          "- all full: 100.0 % of tokens on full attention, routed 10.0 %; routed minus it "
          "-0.0500 nats/byte; its attention takes 2.00 times the routed row's, 1.60 times with "
          "the controller"),
      std::string::npos)
      << text;
  EXPECT_NE(
      text.find("Rows that start from another run train its extra steps on top."),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("| 4.00 | 1.00 | 5.00 |"), std::string::npos) << text;
  EXPECT_NE(text.find("ms of attention and controller per forward pass."), std::string::npos);
}

TEST(DemoPlan, EveryShippedPlanReads) {
  const auto folder = std::filesystem::path(SLUICE_ROOT) / "tools" / "demo";
  int plans = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    ++plans;
    EXPECT_NO_THROW(read_plan(entry.path().string())) << entry.path();
  }
  EXPECT_GE(plans, 3);
}

class PlanFile : public ::testing::Test {
 protected:
  std::string write(const std::string& text, const std::string& name = "plan") {
    const std::string path = folder_ / (name + ".json");
    std::ofstream(path) << text;
    return path;
  }

  testing::TemporaryFolder folder_;
};

TEST_F(PlanFile, ExtendsIsAPatchAndChangesReachTheConfig) {
  write(
      R"({"title": "a", "base": {"train": {"steps": 7, "warmup": 1}}, "runs": [{"name": "s"},
      {"name": "r", "changes": {"model": {"layers": 3}}, "start_from": "s"}],
      "rows": [{"run": "s", "role": "control"}, {"run": "r", "role": "routed", "mode": "soft"}]})",
      "base");
  const DemoPlan plan = read_plan(write(R"({"extends": "base.json", "seeds": [3, 4],
      "base": {"train": {"steps": 9}}})"));
  EXPECT_EQ(plan.title, "a");
  EXPECT_FALSE(plan.rows[0].continued);
  EXPECT_TRUE(plan.rows[1].continued);
  EXPECT_EQ(plan.seeds, (std::vector<uint64_t>{3, 4}));
  EXPECT_EQ(run_config_from_json(plan.runs[1].config).train.steps, 9);
  EXPECT_EQ(run_config_from_json(plan.runs[1].config).model.layers, 3);
  EXPECT_EQ(plan.rows[1].mode, RouteMode::soft);
}

TEST_F(PlanFile, WindowsThatChoseTheRecipeAreNamed) {
  const DemoPlan plan = read_plan(write(R"({"evaluate_first_window": 64, "runs": [
      {"name": "f", "changes": {"model": {"layer_kinds": ["full"]}}},
      {"name": "g", "changes": {"model": {"layer_kinds": ["given"]}}},
      {"name": "r"}],
      "rows": [{"run": "f", "role": "control"}, {"run": "g"}, {"run": "r", "role": "routed"}]})"));
  EXPECT_EQ(plan.first_window, 64);
  EXPECT_EQ(
      describe_windows(plan, 10),
      "held-out windows 64..73, windows before 64 were used to choose the recipe");
  EXPECT_EQ(describe_windows({}, 10), "held-out windows 0..9");
  EXPECT_EQ(plan.rows[0].kind, RunKind::all_full);
  EXPECT_EQ(plan.rows[1].kind, RunKind::hand_made);
  EXPECT_EQ(plan.rows[2].kind, RunKind::other);
}

TEST_F(PlanFile, Throws) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {R"({"run": []})", "unknown key run, did you mean runs?"},
      {R"({"runs": [{"name": ""}]})", "each run needs a name of its own"},
      {R"({"runs": [{"name": "a"}, {"name": "a"}]})", "each run needs a name of its own, got 'a'"},
      {R"({"runs": [{"name": "a", "start_from": "b"}]})", "starts from 'b', which is no earlier"},
      {R"({"runs": [{"name": "a", "changes": {"model": {"layer": 1}}}]})", "model.layers"},
      {R"({"runs": [{"name": "a"}], "rows": [{"run": "b"}]})", "is of 'b', which is no run"},
      {R"({"runs": [{"name": "a"}], "rows": [{"run": "a"}]})",
       "exactly one row must have the role"},
  };
  for (const auto& c : cases)
    SLUICE_EXPECT_THROW(read_plan(write(c.text)), ArgumentError, c.message);
}

TEST(RecordMarks, FindsARecordLateInItsWindow) {
  const auto bytes = [](const std::string& text) {
    return std::vector<uint8_t>(text.begin(), text.end());
  };
  const std::string early = "x\nPackage: a\nVersion: 1\n\n";  // begins in the first quarter
  const std::string late = std::string(30, 'y') + "\nPackage: b\n\n";
  const auto text = bytes(early + late + std::string(100, 'z'));
  const Passage passage = find_passage(text, 80);
  EXPECT_EQ(passage.window_begin, 0);
  const auto begin = text.begin() + passage.begin;
  EXPECT_EQ(std::string(begin, text.begin() + passage.end), "Package: b\n");
  const auto plain = bytes(std::string(200, 'z'));
  EXPECT_EQ(find_passage(plain, 80).begin, 1);
  EXPECT_EQ(find_passage(plain, 80).end, 80);
}

// A router that reads the position only: the window for queries before `first`, then `expert`.
void route_by_position(const MetaAttentionLM& model, int layer, int64_t first, Expert expert) {
  const std::string prefix = fmt::format("layers.{}.attention.controller.", layer);
  const auto context = double(model.config().context);
  constexpr float kSteep = 1e4f;
  for (const NamedTensor& named : model.parameters()) {
    if (!named.name.starts_with(prefix)) continue;
    fill(named.tensor, 0);
    float* const data = named.tensor.data<float>();
    if (named.name.ends_with("hidden.weight")) {
      data[named.tensor.size(1) - 1] = kSteep;  // of log(1 + t) / log(1 + context)
    } else if (named.name.ends_with("hidden.bias")) {
      data[0] = float(-kSteep * std::log(double(first) + 0.5) / std::log(1 + context));
    } else if (named.name.ends_with("counts.weight")) {
      data[int64_t(expert) * named.tensor.size(1)] = 1;
    } else {
      data[int64_t(Expert::window)] = 4;
    }
  }
}

TEST(RecordMarks, StandUnderTheBytesThatTheirQueriesPredict) {
  MetaAttentionConfig config;
  config.layers = 3;
  config.layer_kinds = {"routed", "full", "routed"};
  config.width = 16;
  config.heads = 2;
  config.kv_heads = 2;
  config.feed_forward = 16;
  config.context = 60;
  config.controller_width = 4;
  const MetaAttentionLM model(config, 1);
  // Query t predicts byte t + 1 of the window.
  route_by_position(model, 0, 24, Expert::full);
  route_by_position(model, 2, 31, Expert::linear);
  const std::string bytes =
      std::string(60, 'y') + "0123456789012345678\nPackage: b\t\nNo: 7\n\n" + std::string(60, 'z');
  const std::vector<uint8_t> text(bytes.begin(), bytes.end());
  const Passage passage = find_passage(text, 60);
  EXPECT_EQ(passage.window_begin, 60);
  ASSERT_EQ(passage.begin, 80);
  EXPECT_EQ(
      mark_passage(model, text, 60, passage),
      "         Package: b?\n"
      "layer 1  .....FFFFFF\n"
      "layer 3  ...........\n"
      "         No: 7\n"
      "layer 1  FFFFF\n"
      "layer 3  LLLLL\n");
}

}  // namespace
}  // namespace sluice::tools
