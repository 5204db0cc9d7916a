#include "tests/support/compare.h"

#include <cstring>

namespace sluice::testing {
namespace {

std::string index_text(int64_t flat, const Shape& shape) {
  std::string text = ")";
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    text = std::to_string(flat % shape[axis]) + (axis == shape.rank() - 1 ? "" : ", ") + text;
    flat /= shape[axis];
  }
  return "(" + text;
}

}  // namespace

std::vector<double> values_of(const Tensor& tensor) {
  return to_dtype(tensor, DType::f64).to_vector<double>();
}

::testing::AssertionResult near(
    const Tensor& actual,
    const std::vector<double>& expected,
    Tolerance tolerance,
    const std::string& what) {
  const std::vector<double> values = values_of(actual);
  if (values.size() != expected.size()) {
    return ::testing::AssertionFailure()
           << what << ": " << values.size() << " values, expected " << expected.size();
  }
  double worst = 0;
  int64_t worst_at = -1;
  for (size_t i = 0; i < values.size(); ++i) {
    const double a = values[i];
    const double b = expected[i];
    if (std::isinf(b) && a == b) continue;
    const double excess = std::abs(a - b) / (tolerance.absolute + tolerance.relative * std::abs(b));
    if (!(excess <= 1.0) && !(excess <= worst)) {
      worst = std::isnan(excess) ? INFINITY : excess;
      worst_at = int64_t(i);
    }
  }
  if (worst_at < 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << what << " " << describe(actual) << ": worst at " << index_text(worst_at, actual.shape())
         << ": got " << values[size_t(worst_at)] << ", expected " << expected[size_t(worst_at)]
         << ", " << worst << " x the tolerance";
}

::testing::AssertionResult near(
    const Tensor& actual, const Tensor& expected, Tolerance tolerance, const std::string& what) {
  if (!(actual.shape() == expected.shape())) {
    return ::testing::AssertionFailure()
           << what << ": shape " << describe(actual) << ", expected " << describe(expected);
  }
  return near(actual, values_of(expected), tolerance, what);
}

::testing::AssertionResult bit_equal(
    const Tensor& actual, const Tensor& expected, const std::string& what) {
  if (!(actual.shape() == expected.shape()) || actual.dtype() != expected.dtype()) {
    return ::testing::AssertionFailure()
           << what << ": " << describe(actual) << ", expected " << describe(expected);
  }
  const Tensor a = to_contiguous(actual);
  const Tensor b = to_contiguous(expected);
  const size_t size = size_of(a.dtype());
  for (int64_t i = 0; i < a.numel(); ++i) {
    const auto* pa = static_cast<const std::byte*>(a.raw()) + size_t(i) * size;
    const auto* pb = static_cast<const std::byte*>(b.raw()) + size_t(i) * size;
    if (std::memcmp(pa, pb, size) != 0) {
      return ::testing::AssertionFailure()
             << what << " " << describe(actual) << ": bits differ first at "
             << index_text(i, a.shape()) << ": got " << values_of(a)[size_t(i)] << ", expected "
             << values_of(b)[size_t(i)];
    }
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult bf16_rows(
    const Tensor& actual,
    const std::vector<double>& truth,
    const Tensor& naive,
    const std::string& what) {
  const std::vector<double> values = values_of(actual);
  const std::vector<double> plain = values_of(naive);
  if (values.size() != truth.size() || plain.size() != truth.size()) {
    return ::testing::AssertionFailure() << what << ": sizes differ";
  }
  const size_t width = actual.rank() == 0 ? 1 : size_t(actual.size(-1));
  const size_t rows = width == 0 ? 0 : truth.size() / width;
  std::vector<double> error(rows), norm(rows);
  double naive_worst = 0;
  for (size_t r = 0; r < rows; ++r) {
    double plain_error = 0;
    for (size_t c = r * width; c < (r + 1) * width; ++c) {
      error[r] += (values[c] - truth[c]) * (values[c] - truth[c]);
      plain_error += (plain[c] - truth[c]) * (plain[c] - truth[c]);
      norm[r] += truth[c] * truth[c];
    }
    naive_worst = std::max(naive_worst, std::sqrt(plain_error));
  }
  for (size_t r = 0; r < rows; ++r) {
    const double allowed = 2 * naive_worst + 1e-5 * std::sqrt(norm[r]);
    if (!(std::sqrt(error[r]) <= allowed)) {
      return ::testing::AssertionFailure()
             << what << " " << describe(actual) << ": row " << r << " error " << std::sqrt(error[r])
             << ", allowed " << allowed << " (naive worst row " << naive_worst << ")";
    }
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult gradcheck_passes(
    const autograd::GradcheckFunction& function,
    const std::vector<Tensor>& inputs,
    autograd::GradcheckOptions options) {
  const auto result = autograd::gradcheck(function, inputs, options);
  if (result.ok) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "gradcheck: " << result.message << " (worst error " << result.worst_error << ")";
}

}  // namespace sluice::testing
