// The tolerances of the whole test suite, and comparisons that say where and by how much.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/gradcheck.h"
#include "engine/tensor.h"

namespace sluice::testing {

/// |a - b| allowed for an entry whose value is a sum of `summands` terms of order one.
struct Tolerance {
  double absolute;
  double relative;
};

inline Tolerance tolerance_for(DType dtype, int64_t summands = 1) {
  const double root = std::sqrt(double(std::max<int64_t>(1, summands)));
  switch (dtype) {
    case DType::f64:
      return {1e-10 * root, 1e-10};
    case DType::f32:
      return {1e-5 * root, 1e-5};
    default:
      return {0, 0};  // bf16 is compared per row against a naive version: see bf16_rows
  }
}

/// Every entry of `actual` (any float dtype, any strides) against f64 `expected` of its shape.
/// NaN never equals anything; infinities must agree in sign. The failure names the worst index.
::testing::AssertionResult near(
    const Tensor& actual,
    const std::vector<double>& expected,
    Tolerance tolerance,
    const std::string& what = "");
::testing::AssertionResult near(
    const Tensor& actual,
    const Tensor& expected,
    Tolerance tolerance,
    const std::string& what = "");

/// The same bytes, entry by entry.
::testing::AssertionResult bit_equal(
    const Tensor& actual, const Tensor& expected, const std::string& what = "");

/// The rule for bf16: in each row (last axis) the 2-norm error against f64 `truth` is at most twice
/// the worst row error of `naive` (a plain bf16 version with f32 sums), plus 1e-5 of the row's
/// norm.
::testing::AssertionResult bf16_rows(
    const Tensor& actual,
    const std::vector<double>& truth,
    const Tensor& naive,
    const std::string& what = "");

/// All values as doubles, row-major.
std::vector<double> values_of(const Tensor& tensor);

/// EXPECT_TRUE(gradcheck_passes(...)).
::testing::AssertionResult gradcheck_passes(
    const autograd::GradcheckFunction& function,
    const std::vector<Tensor>& inputs,
    autograd::GradcheckOptions options = {});

}  // namespace sluice::testing

/// Expects `statement` to throw `ErrorType` whose text contains `fragment`.
#define SLUICE_EXPECT_THROW(statement, ErrorType, fragment)                                 \
  try {                                                                                     \
    (void)(statement);                                                                      \
    ADD_FAILURE() << #statement " did not throw";                                           \
  } catch (const ErrorType& error) {                                                        \
    EXPECT_NE(std::string(error.what()).find(fragment), std::string::npos) << error.what(); \
  } catch (const std::exception& error) {                                                   \
    ADD_FAILURE() << "wrong type: " << error.what();                                        \
  }
