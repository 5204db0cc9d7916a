#include "models/controller.h"

#include "ops/binary.h"
#include "ops/linear.h"
#include "ops/reduce.h"
#include "ops/router_features.h"
#include "ops/unary.h"

namespace sluice {
Tensor Posterior::mean() const {
  return ops::div(concentration, ops::sum(concentration, {-1}, ops::KeepDim::yes));
}

Controller::Controller(const MetaAttentionConfig& config, int64_t layer, Initialiser& init)
    : config_(config),
      hidden_weight_(init.normal({config.controller_width, config.width + 2}, 0.02)),
      hidden_bias_(init.constant({config.controller_width}, 0)),
      count_weight_(init.normal({kExperts, config.controller_width}, 0.02)),
      count_bias_(init.constant({kExperts}, 0)) {
  if (config.warm_kinds.empty()) return;
  count_bias_.data<float>()[size_t(config.warm_expert(layer))] = float(config.warm_evidence);
}

Posterior Controller::operator()(
    const Tensor& residual, const Tensor& normed, int64_t offset) const {
  const Tensor input =
      ops::router_features(residual, normed, {.offset = offset, .context = config_.context});
  const Tensor hidden =
      ops::linear(input, hidden_weight_, hidden_bias_, {.activation = ops::Activation::gelu});
  const Tensor evidence = ops::softplus(ops::linear(hidden, count_weight_, count_bias_));
  const auto prior = prior_counts(config_);
  const Tensor beta = from_values(std::vector<float>(prior.begin(), prior.end()), {kExperts});
  return {ops::add(evidence, beta)};
}

void Controller::collect(const std::string& prefix, std::vector<NamedTensor>& parameters) const {
  parameters.push_back({prefix + "hidden.weight", hidden_weight_});
  parameters.push_back({prefix + "hidden.bias", hidden_bias_});
  parameters.push_back({prefix + "counts.weight", count_weight_});
  parameters.push_back({prefix + "counts.bias", count_bias_});
}

}  // namespace sluice
