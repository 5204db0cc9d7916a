// Exit statuses and messages of the program, and a run from training to generation.
#include "tools/command_line.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;

struct Ending {
  int status;
  std::string output;
  std::string errors;
};

class CommandLine : public ::testing::Test {
 protected:
  CommandLine() {
    std::ofstream text(path("text"));
    for (int i = 0; i < 200; ++i) text << "Package: p" << i << "\nFilename: pool/p" << i << "\n\n";
    std::ofstream(path("config.json")) << R"({
      "model": {"layers": 2, "width": 16, "heads": 2, "context": 32, "window": 4,
                "controller_width": 8},
      "data": {"held_out": 0.1},
      "train": {"steps": 3, "batch": 2, "tokens": 32, "warmup": 1}})";
  }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  static Ending run(std::vector<std::string> arguments) {
    std::vector<const char*> pointers = {"sluice"};
    for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int status = run_command_line(int(pointers.size()), pointers.data());
    const std::string output = ::testing::internal::GetCapturedStdout();
    return {status, output, ::testing::internal::GetCapturedStderr()};
  }

  Ending train(const std::string& out, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {
        "train", "--config", path("config.json"), "--text", path("text"), "--out", path(out)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }

  const testing::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(CommandLine, FromTrainingToGeneration) {
  const Ending trained = train("run", {"--json", "--threads", "1"});
  ASSERT_EQ(trained.status, 0) << trained.errors;
  EXPECT_EQ(nlohmann::json::parse(trained.output).at("step"), 3);

  const Ending inspected = run({"inspect", path("run"), "--json"});
  ASSERT_EQ(inspected.status, 0) << inspected.errors;
  const auto inspection = nlohmann::json::parse(inspected.output);
  EXPECT_EQ(inspection.at("step"), 3);
  EXPECT_GT(inspection.at("parameters"), 256 * 16);
  EXPECT_EQ(inspection.at("config").at("model").at("layers"), 2);
  EXPECT_EQ(run({"inspect", path("run/checkpoint-00000003/model.safetensors")}).status, 0);

  const Ending evaluated = run({"eval", path("run"), "--json", "--windows", "2"});
  ASSERT_EQ(evaluated.status, 0) << evaluated.errors;
  const auto modes = nlohmann::json::parse(evaluated.output).at("modes");
  ASSERT_EQ(modes.size(), 7u);
  for (const auto& mode : modes) {
    EXPECT_GT(mode.at("loss"), 3.0) << mode;  // hardly trained: near ln 256 = 5.5
    EXPECT_LT(mode.at("loss"), 7.0) << mode;
    const auto share = mode.at("layers").at(0).at("share").get<std::vector<double>>();
    EXPECT_NEAR(share[0] + share[1] + share[2], 1.0, 1e-6) << mode;
  }

  const std::vector<std::string> command = {
      "generate", path("run"), "--prompt", "Package: ", "--bytes", "12", "--seed", "3", "--json"};
  const Ending generated = run(command);
  ASSERT_EQ(generated.status, 0) << generated.errors;
  EXPECT_EQ(run(command).output, generated.output);
  EXPECT_EQ(nlohmann::json::parse(generated.output).at("stopped_at_context"), false);
  const Ending cut = run({"generate", path("run"), "--prompt", "Package: ", "--bytes", "99"});
  EXPECT_NE(cut.errors.find("stopped after 24 of 99 bytes"), std::string::npos) << cut.errors;
}

TEST_F(CommandLine, MessagesSayWhatToDo) {
  ASSERT_EQ(train("run").status, 0);
  std::ofstream(path("short")) << "abc";
  std::ofstream(path("bad.json")) << "{";
  const struct {
    std::vector<std::string> arguments;
    int status;
    std::string message;
  } cases[] = {
      {{}, 2, "subcommand is required"},
      {{"trian"}, 2, "sluice: "},
      {{"train", "--config", "x"}, 2, "--out"},
      {{"train", "--out", path("a"), "--seed", "-1", "--text", path("text")}, 2, "must be >= 0"},
      {{"--device", "gpu", "inspect", path("run")}, 2, "must be cpu"},
      {{"--device", "simt", "inspect", path("run")}, 1, "this build computes on cpu only"},
      {{"train", "--out", path("a")}, 1, "no text: give --text FILE"},
      {{"train", "--out", path("a"), "--text", path("no")}, 1, path("no") + ": cannot open"},
      {{"train", "--out", path("a"), "--text", path("short")}, 1, "is too short"},
      {{"train", "--out", path("a"), "--config", path("no.json")}, 1, "no.json: cannot open"},
      {{"train", "--out", path("a"), "--config", path("bad.json")}, 1, "bad.json: is not JSON"},
      {{"train", "--out", path("a"), "--text", path("text"), "--set", "train.step=3"},
       1,
       "unknown key train.step, did you mean train.steps?"},
      {{"train", "--out", path("a"), "--text", path("text"), "--set", "oops"}, 1, "key=value"},
      {{"train", "--out", path("run"), "--text", path("text"), "--config", path("config.json")},
       1,
       "holds a run that reached step 3; continue it with --resume"},
      {{"train", "--out", path("run"), "--resume", "--set", "model.layers=3"},
       1,
       "config.model.layers: 3 here, 2 there"},
      {{"train",
        "--out",
        path("b"),
        "--text",
        path("text"),
        "--config",
        path("config.json"),
        "--set",
        "model.layers=3",
        "--start-from",
        path("run")},
       1,
       "does not fit this model"},
      {{"train", "--out", path("typo"), "--resume"}, 1, "typo: holds no run to resume"},
      {{"train", "--out", path("run"), "--resume", "--set", "model.layers=3"},
       1,
       "; choose another folder, or delete this one to begin again"},
      {{"eval", path("no")}, 1, "No such file or directory"},
      {{"eval", path("run"), "--mode", "hrd"}, 1, "did you mean 'hard'?"},
      {{"eval", path("run"), "--mode", "hrd", "--text", path("no")}, 1, "did you mean 'hard'?"},
      {{"eval", folder_}, 1, "is neither a checkpoint"},
      {{"inspect", path("text")}, 1, path("text")},
      {{"generate", path("run"), "--prompt", std::string(32, 'x')}, 1, "the context of 32 bytes"},
  };
  for (const auto& c : cases) {
    const Ending ending = run(c.arguments);
    EXPECT_EQ(ending.status, c.status) << ending.errors << c.message;
    EXPECT_NE(ending.errors.find(c.message), std::string::npos)
        << ending.errors << "expected: " << c.message;
    const auto line = ending.errors.find("sluice: ");
    ASSERT_NE(line, std::string::npos) << ending.errors;
    EXPECT_EQ(ending.errors.find('\n', line), ending.errors.size() - 1) << "one line, the last";
  }
}

TEST_F(CommandLine, AFinishedRunIsLeftAlone) {
  ASSERT_EQ(train("run").status, 0);
  const auto before = fs::last_write_time(path("run/checkpoint-00000003/state.json"));
  EXPECT_EQ(train("run", {"--resume"}).status, 0);
  EXPECT_EQ(fs::last_write_time(path("run/checkpoint-00000003/state.json")), before);
}

TEST_F(CommandLine, StartFromCrossesKindsOfLayers) {
  ASSERT_EQ(train("dense", {"--set", "model.layer_kinds=[\"full\"]"}).status, 0);
  const Ending routed = train("routed", {"--start-from", path("dense")});
  EXPECT_EQ(routed.status, 0) << routed.errors;
  const Ending given =
      train("given", {"--start-from", path("routed"), "--set", "model.layer_kinds=[\"given\"]"});
  EXPECT_EQ(given.status, 0) << given.errors;
}

// A run that is killed before its first step has only the checkpoint of step 0.
TEST_F(CommandLine, StartFromSurvivesAKillBeforeTheFirstCheckpoint) {
  ASSERT_EQ(train("dense", {"--set", "model.layer_kinds=[\"full\"]"}).status, 0);
  const std::string keep = "train.checkpoints_kept=9";
  ASSERT_EQ(train("run", {"--start-from", path("dense"), "--set", keep}).status, 0);
  const auto bytes = [this](const std::string& name) {
    std::ifstream file(path(name), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string last = "run/checkpoint-00000003";
  const std::string expected = bytes(last + "/model.safetensors");
  ASSERT_FALSE(expected.empty());
  fs::remove_all(path(last));
  ASSERT_TRUE(fs::exists(path("run/checkpoint-00000000/state.json")));
  fs::remove(path("run/config.json"));
  const Ending resumed = run({"train", "--out", path("run"), "--resume"});
  EXPECT_EQ(resumed.status, 0) << resumed.errors;
  EXPECT_TRUE(bytes(last + "/model.safetensors") == expected);
}

TEST_F(CommandLine, TheTextIsAPathWhateverItsName) {
  const auto before = fs::current_path();
  fs::current_path(folder_);
  fs::copy_file("text", "12");
  const Ending trained =
      run({"train", "--config", "config.json", "--text", "12", "--out", "numbered"});
  fs::current_path(before);
  ASSERT_EQ(trained.status, 0) << trained.errors;
  const Ending inspected = run({"inspect", path("numbered"), "--json"});
  const auto config = nlohmann::json::parse(inspected.output).at("config");
  EXPECT_EQ(config.at("data").at("text"), path("12"));
}

TEST_F(CommandLine, HelpAndVersionSucceed) {
  EXPECT_EQ(run({"--help"}).status, 0);
  EXPECT_EQ(run({"--version"}).output.substr(0, 7), "sluice ");
  EXPECT_EQ(run({"train", "--help"}).status, 0);
}

}  // namespace
}  // namespace sluice::tools
