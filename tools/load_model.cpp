// See load_model.h.
#include "tools/load_model.h"

#include "models/checkpoint.h"
#include "models/trainer.h"

namespace sluice::tools {

LoadedModel load_model(const std::string& path) {
  LoadedModel loaded;
  loaded.checkpoint = resolve_checkpoint(path);
  const nlohmann::json state = read_state(loaded.checkpoint);
  loaded.step = state.at("step").get<int64_t>();
  loaded.config = run_config_from_json(state.value("config", nlohmann::json()));
  loaded.model = std::make_unique<MetaAttentionLM>(loaded.config.model, loaded.config.train.seed);
  load_tensors(loaded.checkpoint + "/model.safetensors", state_tensors(*loaded.model));
  return loaded;
}

}  // namespace sluice::tools
