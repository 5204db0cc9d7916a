#include "models/controller.h"

#include <cmath>

#include "autograd/autograd.h"
#include "ops/binary.h"
#include "ops/cat.h"
#include "ops/linear.h"
#include "ops/reduce.h"
#include "ops/unary.h"
#include "ops/view.h"

namespace sluice {
namespace {

// (B, T, 2): log of the root mean square of the residual row, and the position.
Tensor token_features(const Tensor& residual, int64_t offset, int64_t context) {
  const int64_t B = residual.size(0);
  const int64_t T = residual.size(1);
  const autograd::NoGrad no_grad;
  const Tensor x = to_dtype(residual.detach(), DType::f32);
  const Tensor squares = ops::mean(ops::square(x), {-1});
  const Tensor norms = ops::mul(ops::log(ops::add(squares, 1e-12)), 0.5);
  const Tensor positions = empty({T, 1});
  const double scale = 1.0 / std::log(1.0 + double(context));
  for (int64_t t = 0; t < T; ++t) {
    positions.data<float>()[t] = float(std::log(1.0 + double(offset + t)) * scale);
  }
  return ops::cat({ops::reshape(norms, {B, T, 1}), ops::expand(positions, {B, T, 1})}, -1);
}

}  // namespace

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
  const Tensor features = token_features(residual, offset, config_.context);
  const Tensor input = ops::cat({normed, features}, -1);
  const Tensor hidden =
      ops::linear(input, hidden_weight_, hidden_bias_, {.activation = ops::Activation::gelu});
  const Tensor evidence = ops::softplus(ops::linear(hidden, count_weight_, count_bias_));
  const auto prior = prior_counts(config_);
  const Tensor beta = from_values(std::vector<float>(prior.begin(), prior.end()), {kExperts});
  Posterior posterior;
  posterior.concentration = ops::add(evidence, beta);
  posterior.mean =
      ops::div(posterior.concentration, ops::sum(posterior.concentration, {-1}, ops::KeepDim::yes));
  return posterior;
}

void Controller::collect(const std::string& prefix, std::vector<NamedTensor>& parameters) const {
  parameters.push_back({prefix + "hidden.weight", hidden_weight_});
  parameters.push_back({prefix + "hidden.bias", hidden_bias_});
  parameters.push_back({prefix + "counts.weight", count_weight_});
  parameters.push_back({prefix + "counts.bias", count_bias_});
}

}  // namespace sluice
