#include "tests/support/dtype_sweep.h"

#include "autograd/autograd.h"
#include "engine/context.h"
#include "tests/support/compare.h"

namespace sluice::testing {

GradRun run_with_grads(
    const autograd::GradcheckFunction& function,
    const std::vector<Tensor>& inputs,
    DType dtype,
    DType rounding) {
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) {
    const Tensor value = clone(to_dtype(to_dtype(input, rounding), dtype));
    leaves.push_back(autograd::set_requires_grad(value));
  }
  GradRun run;
  run.outputs = function(leaves);
  for (size_t i = 0; i < run.outputs.size(); ++i) {
    if (!autograd::requires_grad(run.outputs[i])) continue;
    const Tensor weight = randn(run.outputs[i].shape(), 7, i, {DType::f64, {}});
    autograd::backward(
        run.outputs[i], to_dtype(to_dtype(weight, rounding), dtype), {.retain_graph = true});
  }
  for (const Tensor& leaf : leaves) {
    const Tensor grad = autograd::grad(leaf);
    run.grads.push_back(grad.defined() ? grad : zeros_like(leaf));
  }
  return run;
}

void expect_dtypes_agree(
    const autograd::GradcheckFunction& function,
    const std::vector<Tensor>& inputs,
    int64_t summands) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const GradRun run = run_with_grads(function, inputs, dtype, dtype);
    const GradRun truth = run_with_grads(function, inputs, DType::f64, dtype);
    auto compare = [&](const Tensor& actual, const Tensor& expected, const std::string& what) {
      EXPECT_EQ(actual.dtype(), dtype) << what;
      if (dtype == DType::bf16) {
        const Tensor rounded = to_dtype(expected, DType::bf16);
        EXPECT_TRUE(bf16_rows(actual, values_of(expected), rounded, what));
      } else {
        EXPECT_TRUE(near(actual, expected, tolerance_for(dtype, summands), what));
      }
    };
    for (size_t i = 0; i < run.outputs.size(); ++i) {
      compare(run.outputs[i], truth.outputs[i], "output " + std::to_string(i));
    }
    for (size_t i = 0; i < run.grads.size(); ++i) {
      compare(run.grads[i], truth.grads[i], "gradient " + std::to_string(i));
    }
  }
}

void expect_same_bits_for_any_threads(
    const autograd::GradcheckFunction& function, const std::vector<Tensor>& inputs) {
  auto run_on = [&](int threads) {
    ThreadPool pool(threads);
    CpuContext context{pool};
    const ContextScope scope(context);
    return run_with_grads(function, inputs, DType::f32, DType::f32);
  };
  const GradRun one = run_on(1);
  for (const int threads : {2, 3}) {
    const GradRun many = run_on(threads);
    const std::string what = std::to_string(threads) + " threads";
    for (size_t i = 0; i < one.outputs.size(); ++i) {
      EXPECT_TRUE(bit_equal(many.outputs[i], one.outputs[i], what));
    }
    for (size_t i = 0; i < one.grads.size(); ++i) {
      EXPECT_TRUE(bit_equal(many.grads[i], one.grads[i], what));
    }
  }
}

}  // namespace sluice::testing
