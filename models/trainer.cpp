// See trainer.h.
#include "models/trainer.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "autograd/autograd.h"
#include "engine/errors.h"
#include "models/batches.h"
#include "ops/adamw.h"
#include "ops/clip_grad_norm.h"

namespace sluice {
namespace {

/// FNV-1a: tells one text from another, not from a forged one.
uint64_t fingerprint(const std::vector<uint8_t>& bytes) {
  uint64_t hash = 14695981039346656037ull;
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 1099511628211ull;
  return hash;
}

nlohmann::json to_json(const RouteStats& stats) {
  return {
      {"mean_weight", stats.mean_weight},
      {"share", stats.share},
      {"entropy", stats.entropy},
      {"sample_entropy", stats.sample_entropy},
      {"mutual_information", stats.mutual_information},
      {"decided", stats.decided},
      {"dirichlet_entropy", stats.dirichlet_entropy},
      {"kl", stats.kl},
      {"expected_cost", stats.expected_cost},
      {"hard_cost", stats.hard_cost}};
}

bool has_given_layer(const MetaAttentionConfig& config) {
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    if (config.kind(layer) == LayerKind::given) return true;
  }
  return false;
}

/// The configuration without what changes no number of the run: where the text lies (its contents
/// are compared) and when checkpoints are made.
nlohmann::json without_bookkeeping(nlohmann::json config) {
  // A damaged checkpoint may hold anything here; erasing from what is no object throws.
  const auto part = [&](const char* name) {
    return config.is_object() && config.contains(name) && config[name].is_object();
  };
  if (part("data")) config["data"].erase("text");
  if (part("train")) {
    config["train"].erase("checkpoint_every");
    config["train"].erase("checkpoints_kept");
  }
  return config;
}

}  // namespace

nlohmann::json to_json(const StepReport& report) {
  nlohmann::json line = {
      {"step", report.step},
      {"loss", report.loss},
      {"objective", report.objective},
      {"learning_rate", report.learning_rate},
      {"gradient_norm", report.gradient_norm},
      {"kl", report.kl},
      {"expected_cost", report.expected_cost},
      {"multiplier", report.multiplier},
      {"mode", name_of(report.mode)}};
  for (const RouteStats& stats : report.layers) line["layers"].push_back(to_json(stats));
  return line;
}

std::vector<NamedTensor> state_tensors(const Module& module) {
  std::vector<NamedTensor> tensors = module.parameters();
  for (NamedTensor& buffer : module.buffers()) tensors.push_back(std::move(buffer));
  return tensors;
}

Trainer::Trainer(const RunConfig& config, TextData text)
    : config_(config), text_(std::move(text)), model_(config.model, config.train.seed) {
  require_windows(text_, config_.train.tokens);
  if (has_given_layer(config_.model)) {
    given_mask_ = field_value_mask(text_.training(), config_.data.given_fields);
  }
  parameters_ = model_.parameters();
  for (const NamedTensor& parameter : parameters_) {
    autograd::set_requires_grad(parameter.tensor);
    const Shape& shape = parameter.tensor.shape();
    moments_.push_back({zeros(shape), zeros(shape)});
  }
}

void Trainer::accumulate(int64_t part, StepReport& report) {
  const TrainConfig& train = config_.train;
  const int64_t pass = steps_done_ * train.accumulation + part;
  const Batch batch = sampled_batch(
      text_.training(),
      {.batch = train.batch, .tokens = train.tokens, .seed = train.seed},
      pass * train.batch);
  const RoutePhase& phase = phase_at(config_.model, steps_done_, train.steps);
  StepOptions options{
      .mode = phase.mode,
      .sharpness = phase.sharpness,
      .hold_cost = phase.hold_cost,
      .training = true,
      .seed = train.seed,
      .step = static_cast<uint64_t>(pass)};
  const bool last = part + 1 == train.accumulation;
  options.statistics =
      last && train.statistics_every > 0 && report.step % train.statistics_every == 0;
  if (!given_mask_.empty()) {
    options.full_mask = target_mask(given_mask_, train.tokens, batch.starts);
  }

  const ModelOutput output = model_.forward(batch.tokens, batch.targets, options);
  const double weight = 1.0 / static_cast<double>(train.accumulation);
  const double loss = output.cross_entropy.item<float>();
  const double objective = output.objective.item<float>();
  if (!std::isfinite(objective)) refuse("loss", objective, report.step);
  autograd::backward(
      output.objective,
      full(output.objective.shape(), weight, {.dtype = output.objective.dtype()}));

  report.mode = phase.mode;
  report.loss += weight * loss;
  report.objective += weight * objective;
  report.kl += weight * output.kl;
  report.expected_cost += weight * output.expected_cost;
  if (!options.statistics) return;
  for (size_t layer = 0; layer < output.layers.size(); ++layer) {
    if (config_.model.kind(static_cast<int64_t>(layer)) == LayerKind::routed) {
      report.layers.push_back(output.layers[layer].decision.stats);
    }
  }
}

void Trainer::update(StepReport& report) {
  const TrainConfig& train = config_.train;
  std::vector<Tensor> gradients;
  std::vector<ops::AdamWParam> matrices, vectors;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& parameter = parameters_[i].tensor;
    // Undefined where nothing in this phase depends on the parameter: then it stays as it is.
    gradients.push_back(autograd::grad(parameter));
    // The gains of QK-norm have rank 2, (H, D); decay would pull them to 0 instead of to 1.
    const bool decays = parameter.rank() >= 2 && !parameters_[i].name.ends_with("norm.weight");
    auto& group = decays ? matrices : vectors;
    group.push_back({parameter, gradients.back(), moments_[i].first, moments_[i].second});
  }
  report.gradient_norm = ops::grad_norm(gradients);
  if (!std::isfinite(report.gradient_norm)) {
    refuse("gradient norm", report.gradient_norm, report.step);
  }
  report.learning_rate = learning_rate(train.schedule(), steps_done_);
  ops::AdamWOptions options{
      .lr = report.learning_rate,
      .beta1 = train.beta1,
      .beta2 = train.beta2,
      .eps = train.epsilon,
      .weight_decay = train.weight_decay,
      .step = report.step,
      .grad_scale = train.clip > 0 ? ops::clip_scale(report.gradient_norm, train.clip) : 1.0};
  ops::adamw_step(matrices, options);
  options.weight_decay = 0;
  ops::adamw_step(vectors, options);
  clear_gradients();
}

void Trainer::clear_gradients() const {
  for (const NamedTensor& parameter : parameters_) autograd::set_grad(parameter.tensor, {});
}

void Trainer::refuse(const char* what, double value, int64_t step) const {
  clear_gradients();
  throw Error(fmt::format(
      "training: the {} is {} at step {}; the parameters are unchanged. Begin a new run with "
      "--start-from the newest checkpoint and a lower learning_rate",
      what,
      std::isnan(value) ? std::abs(value) : value,  // without the sign of "-nan"
      step));
}

StepReport Trainer::step() {
  StepReport report;
  report.step = steps_done_ + 1;
  // A step that ended in an exception may have left the gradients of its first parts.
  clear_gradients();
  for (int64_t part = 0; part < config_.train.accumulation; ++part) accumulate(part, report);
  update(report);
  if (phase_at(config_.model, steps_done_, config_.train.steps).hold_cost) {
    ModelOutput mean;  // one cost for the step: the last pass alone would be a noisier one
    mean.expected_cost = report.expected_cost;
    model_.update_multiplier(mean);
  }
  report.multiplier = model_.multiplier();
  ++steps_done_;
  return report;
}

Checkpoint Trainer::checkpoint() const {
  Checkpoint checkpoint;
  checkpoint.step = steps_done_;
  checkpoint.model = state_tensors(model_);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    checkpoint.optimiser.push_back({"first." + parameters_[i].name, moments_[i].first});
    checkpoint.optimiser.push_back({"second." + parameters_[i].name, moments_[i].second});
  }
  checkpoint.state = {
      {"config", to_json(config_)},
      {"samples", steps_done_ * config_.train.samples_per_step()},
      // Counter-based generators have no state of their own: seed and step are all of it.
      {"random", {{"generator", "philox4x32-10"}, {"seed", config_.train.seed}}},
      {"text", {{"bytes", text_.bytes.size()}, {"fingerprint", fingerprint(text_.bytes)}}}};
  return checkpoint;
}

void Trainer::restore(const std::string& path) {
  const nlohmann::json state = read_state(path);
  const Checkpoint here = checkpoint();
  for (const char* part : {"config", "text"}) {
    const auto lines = differences(
        without_bookkeeping(here.state.at(part)),
        without_bookkeeping(state.value(part, nlohmann::json())),
        part);
    SLUICE_CHECK(
        lines.empty(),
        ArgumentError,
        "{}: cannot be resumed by this run, which differs (here: this run, there: the checkpoint): "
        "{}; choose another folder, or delete this one to begin again",
        path,
        fmt::join(lines, "; "));
  }
  load_tensors(path + "/model.safetensors", here.model);
  load_tensors(path + "/optimiser.safetensors", here.optimiser);
  steps_done_ = state.at("step").get<int64_t>();
}

void Trainer::start_from(const std::string& path) {
  const auto of_router = [](const std::string& name) {
    return name.find(".controller.") != std::string::npos || name.ends_with(".baseline");
  };
  load_tensors(path + "/model.safetensors", state_tensors(model_), of_router);
}

}  // namespace sluice
