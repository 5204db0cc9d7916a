// The analytic side is a list of rows: each is the gradient of one weighting of the outputs. The
// numeric side differences the outputs entry by entry before it weights them, so that large outputs
// which do not depend on an input cancel exactly.
#include "autograd/gradcheck.h"

#include <algorithm>
#include <cmath>

#include "autograd/autograd.h"
#include "engine/errors.h"

namespace sluice::autograd {
namespace {

using Values = std::vector<double>;

// All entries of several tensors, one after the other.
Values concatenate(const std::vector<Tensor>& tensors) {
  Values values;
  for (const Tensor& tensor : tensors) {
    const auto more = tensor.to_vector<double>();
    values.insert(values.end(), more.begin(), more.end());
  }
  return values;
}

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Values normal_values(size_t count, uint64_t seed, uint64_t stream) {
  return randn({static_cast<int64_t>(count)}, seed, stream, {DType::f64, {}}).to_vector<double>();
}

// One way of contracting the outputs to a number, and the gradient of that number.
struct Row {
  std::string name;
  size_t output = 0;  // the one entry that counts when there are no weights
  Values weights;
  Values gradient;

  double contract(const Values& outputs) const {
    return weights.empty() ? outputs[output] : dot(weights, outputs);
  }
};

class Checker {
 public:
  Checker(
      const GradcheckFunction& function,
      const std::vector<Tensor>& inputs,
      GradcheckOptions options)
      : function_(function), options_(options) {
    for (const Tensor& input : inputs) {
      SLUICE_CHECK(
          input.dtype() == DType::f64,
          DTypeError,
          "gradcheck: inputs must be f64, got {}",
          name_of(input.dtype()));
      inputs_.push_back(set_requires_grad(clone(input)));
    }
    origin_ = concatenate(inputs_);
  }

  GradcheckResult run() {
    make_rows();
    if (int64_t(origin_.size()) <= options_.max_inputs)
      check_entries();
    else
      check_directions();
    return result_;
  }

 private:
  void make_rows() {
    outputs_ = function_(inputs_);
    const size_t entries = concatenate(outputs_).size();
    if (int64_t(entries * origin_.size()) <= options_.full_jacobian) {
      for (size_t j = 0; j < entries; ++j) add_row({fmt::format("output {}", j), j, {}, {}});
    } else {
      add_row({"weighted outputs", 0, normal_values(entries, options_.seed, 1000), {}});
    }
    outputs_.clear();
  }

  void add_row(Row row) {
    for (const Tensor& input : inputs_) set_grad(input, Tensor());
    size_t first = 0;
    for (const Tensor& output : outputs_) {
      const Tensor seed = zeros(output.shape(), {DType::f64, output.device()});
      const auto count = static_cast<size_t>(output.numel());
      double* data = seed.data<double>();
      for (size_t i = 0; i < count; ++i) {
        if (!row.weights.empty())
          data[i] = row.weights[first + i];
        else if (first + i == row.output)
          data[i] = 1.0;
      }
      const bool counts =
          !row.weights.empty() || (row.output >= first && row.output < first + count);
      first += count;
      if (counts && requires_grad(output)) backward(output, seed, {.retain_graph = true});
    }
    for (const Tensor& input : inputs_) {
      const Tensor gradient = grad(input);
      const Values values =
          gradient.defined() ? gradient.to_vector<double>() : Values(size_t(input.numel()), 0.0);
      row.gradient.insert(row.gradient.end(), values.begin(), values.end());
    }
    rows_.push_back(std::move(row));
  }

  // Outputs at origin + distance * direction.
  Values evaluate(const Values& direction, double distance) {
    size_t first = 0;
    for (const Tensor& input : inputs_) {
      double* data = input.data<double>();
      for (size_t i = 0; i < size_t(input.numel()); ++i) {
        data[i] = origin_[first + i] + distance * direction[first + i];
      }
      first += size_t(input.numel());
    }
    const NoGrad no_grad;
    return concatenate(function_(inputs_));
  }

  Values difference(const Values& direction, double step) {
    Values above = evaluate(direction, step);
    const Values below = evaluate(direction, -step);
    for (size_t i = 0; i < above.size(); ++i) above[i] = (above[i] - below[i]) / (2 * step);
    return above;
  }

  void check_entries() {
    Values direction(origin_.size(), 0.0);
    size_t flat = 0;
    for (size_t n = 0; n < inputs_.size(); ++n) {
      for (int64_t j = 0; j < inputs_[n].numel(); ++j, ++flat) {
        direction[flat] = 1.0;
        const Values numeric =
            difference(direction, options_.step * std::max(1.0, std::abs(origin_[flat])));
        direction[flat] = 0.0;
        for (const Row& row : rows_) {
          compare(row.gradient[flat], row.contract(numeric), [&] {
            return fmt::format("{}, input {} element {}", row.name, n, j);
          });
        }
      }
    }
  }

  void check_directions() {
    for (int p = 0; p < options_.projections; ++p) {
      const Values direction = normal_values(origin_.size(), options_.seed, 2000 + uint64_t(p));
      const Values numeric = difference(direction, options_.step);
      for (const Row& row : rows_) {
        compare(dot(row.gradient, direction), row.contract(numeric), [&] {
          return fmt::format("{}, direction {}", row.name, p);
        });
      }
    }
  }

  template <class Where>
  void compare(double analytic, double numeric, Where&& where) {
    double error = std::abs(analytic - numeric) / std::max(1.0, std::abs(numeric));
    if (std::isnan(error)) error = INFINITY;
    if (error > options_.tolerance && (result_.ok || error > result_.worst_error)) {
      result_.ok = false;
      result_.message =
          fmt::format("{}: analytic {:.12g}, numeric {:.12g}", where(), analytic, numeric);
    }
    result_.worst_error = std::max(result_.worst_error, error);
  }

  const GradcheckFunction& function_;
  GradcheckOptions options_;
  std::vector<Tensor> inputs_;  // private dense copies
  Values origin_;
  std::vector<Tensor> outputs_;
  std::vector<Row> rows_;
  GradcheckResult result_;
};

}  // namespace

GradcheckResult gradcheck(
    const GradcheckFunction& function,
    const std::vector<Tensor>& inputs,
    GradcheckOptions options) {
  return Checker(function, inputs, options).run();
}

}  // namespace sluice::autograd
