// Functions of one tensor, element by element. All of them:
//
// Shapes  any -> the same, dense
// DTypes  f32, bf16 (computed in f32), f64
// Grads   x
// Throws  DTypeError, ArgumentError (undefined)
#pragma once

#include "engine/tensor.h"

namespace sluice::ops {

/// -x
Tensor neg(const Tensor& x);
/// e^x
Tensor exp(const Tensor& x);
/// Natural logarithm; -infinity at 0, NaN below.
Tensor log(const Tensor& x);
/// Square root; NaN below 0.
Tensor sqrt(const Tensor& x);
/// 1 / (1 + e^-x)
Tensor sigmoid(const Tensor& x);
/// log(1 + e^x), without overflow and accurate for very negative x.
Tensor softplus(const Tensor& x);
/// x sigmoid(x)
Tensor silu(const Tensor& x);
/// x for x > 0, else e^x - 1.
Tensor elu(const Tensor& x);
/// max(x, 0); NaN stays NaN; gradient 0 at 0.
Tensor relu(const Tensor& x);
/// x^2
Tensor square(const Tensor& x);
/// |x|; gradient 0 at 0.
Tensor abs(const Tensor& x);

enum class GeluForm : uint8_t {
  erf,   ///< x Phi(x), Phi the normal distribution function
  tanh,  ///< 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), as in GPT-2
};

/// Gaussian error linear unit.
///
/// Source  Hendrycks, Gimpel 2016, arXiv:1606.08415, section 2
Tensor gelu(const Tensor& x, GeluForm form = GeluForm::erf);

}  // namespace sluice::ops
