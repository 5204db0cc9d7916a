// Random damage to checkpoints: each is restored as it stands, or refused with a message.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/errors.h"
#include "models/checkpoint.h"
#include "models/trainer.h"
#include "tests/models/damage.h"
#include "tests/support/compare.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using nlohmann::json;
using testing::damage;
using testing::for_each_fuzz_case;
using testing::Random;

TextData sample_text() {
  TextData text;
  text.path = "sample";
  for (int i = 0; i < 400; ++i) text.bytes.push_back(uint8_t(i * i % 251));
  text.held_out_begin = 300;
  return text;
}

RunConfig tiny_config() {
  RunConfig config;
  config.model.layers = 1;
  config.model.width = 8;
  config.model.heads = config.model.kv_heads = 1;
  config.model.feed_forward = 8;
  config.model.context = 16;
  config.model.window = 4;
  config.model.controller_width = 4;
  config.train.steps = 9;
  config.train.batch = 1;
  config.train.tokens = 16;
  config.train.warmup = 2;
  return config;
}

class CheckpointFuzz : public ::testing::Test {
 protected:
  CheckpointFuzz() {
    for (int step = 0; step < 3; ++step) trainer_.step();
    checkpoint_ = save_checkpoint(folder_.path(), trainer_.checkpoint());
  }

  std::string contents(const char* name) const {
    std::ifstream file(checkpoint_ + "/" + name, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  void replace(const char* name, const std::string& bytes) const {
    std::filesystem::remove(checkpoint_ + "/" + name);  // rewriting it in place would flush it
    std::ofstream(checkpoint_ + "/" + name, std::ios::binary) << bytes;
  }

  /// True when it is restored. A refused file of parameters has changed none of them.
  static bool restores(Trainer& trainer, const std::string& path) {
    try {
      trainer.restore(path);
      return true;
    } catch (const ArgumentError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with(path)) << error.what();
    } catch (const IoError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with(path)) << error.what();
    }
    return false;
  }

  const testing::TemporaryFolder folder_;
  Trainer trainer_{tiny_config(), sample_text()};
  std::string checkpoint_;
};

TEST_F(CheckpointFuzz, DamagedStateIsRestoredOrRefused) {
  const json whole = json::parse(contents("state.json"));
  int taken = 0;
  const bool all = for_each_fuzz_case(3000, [&](Random& random) {
    json state = whole;
    for (int64_t times = random.between(1, 2); times > 0; --times) damage(random, state);
    std::string text = state.dump();
    if (random.chance(0.1)) text.resize(random.below(text.size()));
    SCOPED_TRACE(text);
    replace("state.json", text);
    Trainer other(tiny_config(), sample_text());
    if (!restores(other, checkpoint_)) return;
    ++taken;
    EXPECT_EQ(other.steps_done(), state.at("step").get<int64_t>());
  });
  EXPECT_TRUE(!all || (taken > 100 && taken < 2900)) << taken;
}

TEST_F(CheckpointFuzz, DamagedTensorsAreRestoredOrRefused) {
  int taken = 0;
  const bool all = for_each_fuzz_case(1500, [&](Random& random) {
    const char* name = random.pick({"model.safetensors", "optimiser.safetensors"});
    const std::string whole = contents(name);
    std::string bytes = whole;
    const size_t reach = random.chance(0.7) ? 700 : bytes.size();  // mostly the header
    for (int64_t times = random.between(1, 3); times > 0; --times) {
      const size_t at = random.below(std::min(reach, bytes.size()));
      if (random.chance(0.7))
        bytes[at] = char(random.below(256));
      else
        bytes.erase(at, 1 + random.below(random.chance(0.5) ? 1 : bytes.size()));
      if (bytes.empty()) break;
    }
    replace(name, bytes);
    Trainer other(tiny_config(), sample_text());
    const std::vector<NamedTensor> state = state_tensors(other.model());
    std::vector<Tensor> before;
    for (const NamedTensor& tensor : state) before.push_back(clone(tensor.tensor));
    if (restores(other, checkpoint_)) {
      ++taken;
    } else {
      EXPECT_EQ(other.steps_done(), 0);
      const bool model = std::string(name) == "model.safetensors";
      for (size_t i = 0; model && i < state.size(); ++i) {
        EXPECT_TRUE(testing::bit_equal(state[i].tensor, before[i], state[i].name));
      }
    }
    replace(name, whole);
  });
  EXPECT_TRUE(!all || (taken > 50 && taken < 1450)) << taken;
}

}  // namespace
}  // namespace sluice
