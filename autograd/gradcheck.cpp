#include "autograd/gradcheck.h"

#include <algorithm>
#include <cmath>

#include "autograd/autograd.h"
#include "engine/errors.h"

namespace sluice::autograd {
namespace {

// sum over outputs of <weight, output>, in f64, without recording.
double contract(const std::vector<Tensor>& outputs, const std::vector<Tensor>& weights) {
  double sum = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto values = outputs[i].to_vector<double>();
    const double* weight = weights[i].data<double>();
    for (size_t j = 0; j < values.size(); ++j) sum += values[j] * weight[j];
  }
  return sum;
}

struct Checker {
  const GradcheckFunction& function;
  std::vector<Tensor> inputs;  // private dense copies
  std::vector<Tensor> weights;
  GradcheckOptions options;
  GradcheckResult result;

  double evaluate() {
    const NoGrad no_grad;
    return contract(function(inputs), weights);
  }

  void compare(double analytic, double numeric, const std::string& where) {
    const double error = std::abs(analytic - numeric) / std::max(1.0, std::abs(numeric));
    if (error <= result.worst_error && result.ok) return;
    if (!(error <= options.tolerance)) {
      if (!result.ok && error <= result.worst_error) return;
      result.ok = false;
      result.message =
          fmt::format("{}: analytic {:.12g}, numeric {:.12g}", where, analytic, numeric);
    }
    result.worst_error = std::isnan(error) ? INFINITY : std::max(result.worst_error, error);
  }
};

}  // namespace

GradcheckResult gradcheck(
    const GradcheckFunction& function,
    const std::vector<Tensor>& inputs,
    GradcheckOptions options) {
  Checker check{function, {}, {}, options, {}};
  int64_t entries = 0;
  for (const Tensor& input : inputs) {
    SLUICE_CHECK(
        input.dtype() == DType::f64,
        DTypeError,
        "gradcheck: inputs must be f64, got {}",
        name_of(input.dtype()));
    check.inputs.push_back(set_requires_grad(clone(input)));
    entries += input.numel();
  }
  const std::vector<Tensor> outputs = function(check.inputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    check.weights.push_back(
        randn(outputs[i].shape(), options.seed, 1000 + i, {DType::f64, outputs[i].device()}));
  }
  // One backward per output tensor; leaves add the contributions up.
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (requires_grad(outputs[i])) backward(outputs[i], check.weights[i], {.retain_graph = true});
  }
  std::vector<std::vector<double>> analytic;
  for (const Tensor& input : check.inputs) {
    const Tensor gradient = grad(input);
    analytic.push_back(
        gradient.defined() ? gradient.to_vector<double>()
                           : std::vector<double>(size_t(input.numel()), 0.0));
  }

  if (entries <= options.full_jacobian) {
    for (size_t n = 0; n < check.inputs.size(); ++n) {
      double* data = check.inputs[n].data<double>();
      for (int64_t j = 0; j < check.inputs[n].numel(); ++j) {
        const double x = data[j];
        const double step = options.step * std::max(1.0, std::abs(x));
        data[j] = x + step;
        const double above = check.evaluate();
        data[j] = x - step;
        const double below = check.evaluate();
        data[j] = x;
        check.compare(
            analytic[n][size_t(j)],
            (above - below) / (2 * step),
            fmt::format("input {} element {}", n, j));
      }
    }
    return check.result;
  }
  for (int p = 0; p < options.projections; ++p) {
    double expected = 0;
    std::vector<std::vector<double>> origin;
    std::vector<std::vector<double>> direction;
    for (size_t n = 0; n < check.inputs.size(); ++n) {
      origin.push_back(check.inputs[n].to_vector<double>());
      const uint64_t stream = 2000 + size_t(p) * inputs.size() + n;
      direction.push_back(
          randn(inputs[n].shape(), options.seed, stream, {DType::f64, {}}).to_vector<double>());
      for (size_t j = 0; j < direction[n].size(); ++j) {
        expected += direction[n][j] * analytic[n][j];
      }
    }
    auto move = [&](double distance) {
      for (size_t n = 0; n < check.inputs.size(); ++n) {
        double* data = check.inputs[n].data<double>();
        for (size_t j = 0; j < origin[n].size(); ++j) {
          data[j] = origin[n][j] + distance * direction[n][j];
        }
      }
    };
    move(options.step);
    const double above = check.evaluate();
    move(-options.step);
    const double below = check.evaluate();
    move(0);
    check.compare(expected, (above - below) / (2 * options.step), fmt::format("direction {}", p));
  }
  return check.result;
}

}  // namespace sluice::autograd
