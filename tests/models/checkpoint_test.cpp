// Checkpoints: round trip, atomicity, what differs; metrics that resume.
#include "models/checkpoint.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <sys/inotify.h>
#include <unistd.h>

#include "engine/errors.h"
#include "models/metrics.h"
#include "tests/support/compare.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class CheckpointTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  Checkpoint sample(int64_t step) const {
    return {step, {{"w", randn({2, 3}, uint64_t(step))}}, {{"m.w", zeros({2, 3})}}, {{"seed", 7}}};
  }

  const testing::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

std::string contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_F(CheckpointTest, RoundTripKeepsBitsAndState) {
  const Checkpoint saved = sample(300);
  const std::string where = save_checkpoint(folder_, saved);
  EXPECT_EQ(where, path("checkpoint-00000300"));
  const json state = read_state(where);
  EXPECT_EQ(state.at("step"), 300);
  EXPECT_EQ(state.at("seed"), 7);
  const std::vector<NamedTensor> loaded = {{"w", zeros({2, 3})}};
  load_tensors(where + "/model.safetensors", loaded);
  EXPECT_TRUE(testing::bit_equal(loaded[0].tensor, saved.model[0].tensor));
}

TEST_F(CheckpointTest, AFolderWithoutStateIsReplaced) {
  fs::create_directories(path("checkpoint-00000300"));
  std::ofstream(path("checkpoint-00000300/model.safetensors")) << "cut";
  const std::string where = save_checkpoint(folder_, sample(300));
  EXPECT_EQ(read_state(where).at("step"), 300);
  EXPECT_EQ(list_checkpoints(folder_).size(), 1u);
}

TEST_F(CheckpointTest, OneProcessTrainsInAFolder) {
  {
    const MetricsLog first(path("metrics.jsonl"), 0);
    SLUICE_EXPECT_THROW(
        MetricsLog(path("metrics.jsonl"), 0),
        IoError,
        folder_ + ": another process is training in this folder");
  }
  EXPECT_NO_THROW(MetricsLog(path("metrics.jsonl"), 0));
}

TEST_F(CheckpointTest, ListsCompleteOnesAndPrunes) {
  EXPECT_TRUE(list_checkpoints(path("missing")).empty());
  for (const int64_t step : {5, 100, 20}) save_checkpoint(folder_, sample(step));
  fs::create_directories(path("checkpoint-00000200"));        // no state.json: not complete
  fs::create_directories(path(".checkpoint-00000300.4242"));  // a kill left it
  fs::create_directories(path("checkpoint-x"));
  const auto found = list_checkpoints(folder_);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].step, 5);
  EXPECT_EQ(found[2].step, 100);
  EXPECT_EQ(resolve_checkpoint(folder_), path("checkpoint-00000100"));
  EXPECT_EQ(resolve_checkpoint(found[0].path), found[0].path);
  prune_checkpoints(folder_, 2);
  EXPECT_EQ(list_checkpoints(folder_).front().step, 20);
  EXPECT_FALSE(fs::exists(path(".checkpoint-00000300.4242")));
}

// Deleting a folder takes several calls; a kill between two of them must not leave a checkpoint
// that is listed but lacks a file.
TEST_F(CheckpointTest, ACheckpointIsHiddenBeforeItIsDeleted) {
  for (const int64_t step : {5, 20}) save_checkpoint(folder_, sample(step));
  const int watch = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  ASSERT_GE(::inotify_add_watch(watch, folder_.c_str(), IN_MOVE | IN_DELETE), 0);
  ASSERT_GE(::inotify_add_watch(watch, path("checkpoint-00000005").c_str(), IN_DELETE), 0);
  prune_checkpoints(folder_, 1);
  std::vector<std::pair<uint32_t, std::string>> events;
  alignas(inotify_event) char buffer[4096];
  const ssize_t bytes = ::read(watch, buffer, sizeof(buffer));
  ::close(watch);
  for (ssize_t at = 0; at < bytes;) {
    const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
    events.emplace_back(event->mask & (IN_MOVE | IN_DELETE), event->len > 0 ? event->name : "");
    at += ssize_t(sizeof(inotify_event) + event->len);
  }
  ASSERT_GE(events.size(), 6u) << "two for the name, three files, the folder";
  EXPECT_EQ(events[0], std::pair(uint32_t{IN_MOVED_FROM}, std::string("checkpoint-00000005")));
  EXPECT_EQ(events[1], std::pair(uint32_t{IN_MOVED_TO}, std::string(".checkpoint-00000005")));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(CheckpointTest, WhatAKillLeftOfADeletionIsRemoved) {
  for (const int64_t step : {5, 20}) save_checkpoint(folder_, sample(step));
  fs::create_directories(path(".checkpoint-00000005"));
  std::ofstream(path(".checkpoint-00000005/state.json")) << "{}";
  EXPECT_EQ(list_checkpoints(folder_).size(), 2u);
  prune_checkpoints(folder_, 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
  EXPECT_EQ(list_checkpoints(folder_).at(0).step, 20);
}

TEST_F(CheckpointTest, AFailedSaveLeavesNothingBehind) {
  save_checkpoint(folder_, sample(1));
  Checkpoint bad = sample(2);
  bad.optimiser.push_back({"m.w", zeros({1})});  // a repeated name is refused by the writer
  EXPECT_THROW(save_checkpoint(folder_, bad), ArgumentError);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(CheckpointTest, SavingAStepTwiceKeepsTheFirst) {
  save_checkpoint(folder_, sample(1));
  Checkpoint again = sample(1);
  again.state["seed"] = 8;
  EXPECT_EQ(read_state(save_checkpoint(folder_, again)).at("seed"), 7);
}

TEST_F(CheckpointTest, LoadListsEveryDifferenceAndCopiesNothing) {
  const std::string file = save_checkpoint(folder_, sample(1)) + "/model.safetensors";
  const std::vector<NamedTensor> targets = {{"w", zeros({3, 2})}, {"bias", zeros({2})}};
  SLUICE_EXPECT_THROW(
      load_tensors(file, targets),
      ArgumentError,
      "does not fit this model: w is f32 (3, 2), the file has f32 (2, 3); bias is missing in the "
      "file");
  const std::vector<NamedTensor> none;
  SLUICE_EXPECT_THROW(load_tensors(file, none), ArgumentError, "w is in the file only");
  EXPECT_EQ(targets[0].tensor.to_vector<float>(), std::vector<float>(6, 0.0f));

  const auto all = [](const std::string&) { return true; };
  const std::vector<NamedTensor> others = {{"w", zeros({2, 3})}, {"bias", full({2}, 5)}};
  EXPECT_NO_THROW(load_tensors(file, none, all));
  EXPECT_NO_THROW(load_tensors(file, others, all));
  EXPECT_EQ(others[1].tensor.to_vector<float>(), (std::vector<float>{5, 5}));
  EXPECT_NE(others[0].tensor.to_vector<float>()[0], 0.0f);
  SLUICE_EXPECT_THROW(load_tensors(file, targets, all), ArgumentError, "the file has f32 (2, 3)");
}

TEST_F(CheckpointTest, MessagesNameThePath) {
  SLUICE_EXPECT_THROW(
      resolve_checkpoint(path("no")), IoError, path("no") + ": No such file or directory");
  SLUICE_EXPECT_THROW(resolve_checkpoint(folder_), IoError, "is neither a checkpoint");
  std::ofstream(path("state.json")) << R"({"format": 99})";
  SLUICE_EXPECT_THROW(read_state(folder_), ArgumentError, "format must be 1, got 99");
  std::ofstream(path("state.json")) << "{";
  SLUICE_EXPECT_THROW(read_state(folder_), ArgumentError, "state.json: is not JSON");
  for (const char* step : {"\"7\"", "-1", "1.5", "9223372036854775808"}) {
    std::ofstream(path("state.json")) << R"({"format": 1, "step": )" << step << "}";
    SLUICE_EXPECT_THROW(
        read_state(folder_),
        ArgumentError,
        std::string("step must be an integer >= 0, got ") + step);
  }
  std::ofstream(path("state.json")) << R"({"format": 1})";
  SLUICE_EXPECT_THROW(read_state(folder_), ArgumentError, folder_ + ": step must be");
  SLUICE_EXPECT_THROW(
      save_checkpoint("/proc/none", sample(1)), IoError, "/proc/none/.checkpoint-00000001");
  fs::create_symlink("checkpoint-00000002", path("checkpoint-00000002"));  // to itself
  for (const auto& look : std::vector<std::function<void()>>{
           [this] { resolve_checkpoint(path("checkpoint-00000002")); },
           [this] { list_checkpoints(folder_); },
           [this] { save_checkpoint(folder_, sample(2)); }}) {
    SLUICE_EXPECT_THROW(
        (look(), 0),
        IoError,
        path("checkpoint-00000002/state.json") + ": cannot look for it: Too many levels of");
  }
}

TEST_F(CheckpointTest, MetricsDropLinesBeyondTheCheckpoint) {
  const std::string file = path("metrics.jsonl");
  {
    MetricsLog log(file, 0);
    for (const int step : {1, 2, 3}) log.append({{"step", step}});
    log.sync();
  }
  std::ofstream(file, std::ios::app) << R"({"step": 4, "lo)";  // killed while writing
  {
    MetricsLog log(file, 2);
    EXPECT_EQ(contents(file), "{\"step\":1}\n{\"step\":2}\n");
    log.append({{"step", 3}, {"again", true}});
  }
  EXPECT_EQ(contents(file), "{\"step\":1}\n{\"step\":2}\n{\"again\":true,\"step\":3}\n");
  { const MetricsLog fresh(file, 0); }
  EXPECT_EQ(contents(file), "");
}

TEST_F(CheckpointTest, AFileThatIsNoMetricsIsRefusedAndReleased) {
  const std::string file = path("metrics.jsonl");
  for (const auto& [line, step] :
       {std::pair(R"({"step":"3"})", "\"3\""), {R"({"step":1.5})", "1.5"}, {"{}", "null"}}) {
    const std::string text = "{\"step\":1}\n" + std::string(line) + "\n";
    std::ofstream(file) << text;
    SLUICE_EXPECT_THROW(
        MetricsLog(file, 5),
        IoError,
        file + ": step must be an integer in each line, got " + std::string(step));
    EXPECT_EQ(contents(file), text);
    std::ofstream(file) << "{\"step\":1}\n";
    EXPECT_NO_THROW(MetricsLog(file, 5)) << "the lock must be free again";
  }
}

TEST_F(CheckpointTest, MetricsReportAFullDisk) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full on this system";
  fs::create_symlink("/dev/full", path("metrics.jsonl"));
  // Reading a device is refused before any write; what matters is that the path is named.
  SLUICE_EXPECT_THROW(MetricsLog(path("metrics.jsonl"), 0), IoError, "metrics.jsonl");
}

}  // namespace
}  // namespace sluice
