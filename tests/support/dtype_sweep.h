// One function of floating tensors run forward and backward in every dtype and thread count.
#pragma once

#include <vector>

#include "autograd/gradcheck.h"
#include "engine/tensor.h"

namespace sluice::testing {

/// Outputs of one run, and the gradients of its inputs for fixed random gradients of the outputs.
struct GradRun {
  std::vector<Tensor> outputs;
  std::vector<Tensor> grads;  // zeros where an input does not reach an output
};

/// `inputs` are f64; they and the output gradients are rounded to `rounding` first, then computed
/// with in `dtype`. So a run in f64 with rounding bf16 is the truth of a run in bf16.
GradRun run_with_grads(
    const autograd::GradcheckFunction& function,
    const std::vector<Tensor>& inputs,
    DType dtype,
    DType rounding);

/// Outputs and gradients in f32 and bf16 against f64 on the same rounded inputs. `summands` is the
/// length of the longest sum. bf16 rows may be off by twice what rounding the truth costs.
void expect_dtypes_agree(
    const autograd::GradcheckFunction& function,
    const std::vector<Tensor>& inputs,
    int64_t summands);

/// Outputs and gradients are the same bits with 1, 2 and 3 threads, in f32.
void expect_same_bits_for_any_threads(
    const autograd::GradcheckFunction& function, const std::vector<Tensor>& inputs);

}  // namespace sluice::testing
