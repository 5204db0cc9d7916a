// See run_config.h.
#include "models/run_config.h"

#include <nlohmann/json.hpp>

#include "engine/errors.h"
#include "engine/file.h"
#include "models/config_fields.h"

namespace sluice {
namespace {

using nlohmann::json;

// Each visit names a field once, for writing and reading.
template <class Config, class Visit>
void visit_data(Config& data, Visit&& visit) {
  visit("text", data.text);
  visit("held_out", data.held_out);
  visit("value_fields", data.value_fields);
  visit("given_fields", data.given_fields);
}

template <class Config, class Visit>
void visit_train(Config& train, Visit&& visit) {
  visit("steps", train.steps);
  visit("batch", train.batch);
  visit("accumulation", train.accumulation);
  visit("tokens", train.tokens);
  visit("seed", train.seed);
  visit("learning_rate", train.learning_rate);
  visit("warmup", train.warmup);
  visit("final_fraction", train.final_fraction);
  visit("decay_fraction", train.decay_fraction);
  visit("weight_decay", train.weight_decay);
  visit("beta1", train.beta1);
  visit("beta2", train.beta2);
  visit("epsilon", train.epsilon);
  visit("clip", train.clip);
  visit("statistics_every", train.statistics_every);
  visit("evaluate_every", train.evaluate_every);
  visit("evaluate_windows", train.evaluate_windows);
  visit("checkpoint_every", train.checkpoint_every);
  visit("checkpoints_kept", train.checkpoints_kept);
}

constexpr const char* kDecayNames[] = {"constant", "cosine", "wsd"};

template <class Value>
void require(const char* key, bool good, const char* expected, const Value& value) {
  SLUICE_CHECK(good, ArgumentError, "config: {} must be {}, got {}", key, expected, value);
}

void validate(const RunConfig& config) {
  const auto& [model, data, train] = config;
  require("data.held_out", data.held_out > 0 && data.held_out < 1, "in (0, 1)", data.held_out);
  require("train.steps", train.steps > 0, "> 0", train.steps);
  require("train.batch", train.batch > 0, "> 0", train.batch);
  require("train.accumulation", train.accumulation > 0, "> 0", train.accumulation);
  SLUICE_CHECK(
      train.tokens > 0 && train.tokens <= model.context,
      ArgumentError,
      "config: train.tokens must be in [1, model.context = {}], got {}",
      model.context,
      train.tokens);
  require("model.vocabulary", model.vocabulary >= 256, ">= 256, one per byte", model.vocabulary);
  require("train.learning_rate", train.learning_rate > 0, "> 0", train.learning_rate);
  require("train.weight_decay", train.weight_decay >= 0, ">= 0", train.weight_decay);
  require("train.beta1", train.beta1 >= 0 && train.beta1 < 1, "in [0, 1)", train.beta1);
  require("train.beta2", train.beta2 >= 0 && train.beta2 < 1, "in [0, 1)", train.beta2);
  require("train.epsilon", train.epsilon > 0, "> 0", train.epsilon);
  require("train.clip", train.clip >= 0, ">= 0", train.clip);
  require("train.statistics_every", train.statistics_every >= 0, ">= 0", train.statistics_every);
  require("train.evaluate_every", train.evaluate_every >= 0, ">= 0", train.evaluate_every);
  require("train.evaluate_windows", train.evaluate_windows > 0, "> 0", train.evaluate_windows);
  require("train.checkpoint_every", train.checkpoint_every >= 0, ">= 0", train.checkpoint_every);
  require("train.checkpoints_kept", train.checkpoints_kept > 0, "> 0", train.checkpoints_kept);
  learning_rate(train.schedule(), 0);  // checks warm-up and fractions
}

}  // namespace

json to_json(const RunConfig& config) {
  json data = json::object();
  json train = json::object();
  visit_data(config.data, [&](const char* key, const auto& value) { data[key] = value; });
  visit_train(config.train, [&](const char* key, const auto& value) { train[key] = value; });
  train["decay"] = kDecayNames[static_cast<int>(config.train.decay)];
  return {{"model", to_json(config.model)}, {"data", data}, {"train", train}};
}

RunConfig run_config_from_json(const json& document) {
  RunConfig config;
  ConfigFields top(document, "");
  const json& model = top.nested("model");
  const json& data = top.nested("data");
  const json& train = top.nested("train");
  top.finish();
  config.model = meta_attention_config_from_json(model.is_null() ? json::object() : model);
  if (!data.is_null()) {
    ConfigFields fields(data, "data");
    visit_data(config.data, [&](const char* key, auto& value) { fields.read(key, value); });
    fields.finish();
  }
  if (!train.is_null()) {
    ConfigFields fields(train, "train");
    visit_train(config.train, [&](const char* key, auto& value) { fields.read(key, value); });
    fields.read_enum("decay", config.train.decay, {"constant", "cosine", "wsd"});
    fields.finish();
  }
  validate(config);
  return config;
}

json read_json(const std::string& path) {
  const MappedFile file(path);
  try {
    return json::parse(file.text());
  } catch (const json::exception& error) {
    throw ArgumentError(fmt::format("{}: is not JSON: {}", path, error.what()));
  }
}

void apply_override(json& document, const std::string& assignment) {
  const size_t equals = assignment.find('=');
  SLUICE_CHECK(
      equals != std::string::npos && equals > 0,
      ArgumentError,
      "--set must be key=value, got '{}'",
      assignment);
  const std::string value = assignment.substr(equals + 1);
  json* place = &document;
  std::string_view key = std::string_view(assignment).substr(0, equals);
  for (;;) {
    const size_t dot = std::min(key.find('.'), key.size());
    SLUICE_CHECK(
        dot > 0 && (place->is_object() || place->is_null()),
        ArgumentError,
        "--set: '{}' does not name a field of an object",
        assignment.substr(0, equals));
    place = &(*place)[std::string(key.substr(0, dot))];
    if (dot == key.size()) break;
    key.remove_prefix(dot + 1);
  }
  json parsed = json::parse(value, nullptr, false);
  *place = parsed.is_discarded() ? json(value) : std::move(parsed);
}

std::vector<std::string> differences(const json& here, const json& there, const std::string& path) {
  if (here.is_object() && there.is_object()) {
    json keys = here;
    keys.update(there);
    std::vector<std::string> lines;
    for (const auto& item : keys.items()) {
      const auto value = [&](const json& side) {
        return side.contains(item.key()) ? side.at(item.key()) : json();
      };
      const std::string name = path.empty() ? item.key() : path + "." + item.key();
      for (std::string& line : differences(value(here), value(there), name)) {
        lines.push_back(std::move(line));
      }
    }
    return lines;
  }
  if (here == there) return {};
  return {fmt::format("{}: {} here, {} there", path, here.dump(), there.dump())};
}

}  // namespace sluice
