// Dirichlet distributions over K categories, one per row of concentrations: draws with gradients,
// mean, divergence, entropy; and draws of one category.
#pragma once

#include "engine/philox.h"
#include "engine/tensor.h"

namespace sluice::ops {

/// Logarithms of independent Gamma(alpha, 1) draws.
///
///   out[i] = log z_i,  z_i ~ Gamma(alpha[i], 1), a function of (alpha[i], key, i) alone
///
/// A draw depends on neither the number of elements nor the thread count: the draws of a prefix are
/// the prefix of the draws. They stay finite where z underflows (alpha = 1e-4 and far below).
/// alpha = 0 gives -inf, a negative, infinite or NaN alpha gives NaN.
///
/// Shapes  any -> the same
/// DTypes  f32, bf16, f64; drawn in f64 and rounded
/// Grads   alpha, through the draw at a fixed value of its distribution function; none to the key
/// Cost    about 100 ns per element forward, 50 to 150 ns backward; saves alpha and log z in f64
/// Throws  ArgumentError (undefined), DTypeError
/// Source  Marsaglia, Tsang 2000; Figurnov, Mohamed, Mnih 2018, arXiv:1805.08498
Tensor gamma_log_sample(const Tensor& alpha, PhiloxKey key);

/// One draw per row from Dir(concentration[..,:]).
///
///   a[..,k] = softmax_k(log z_k),  z_k ~ Gamma(concentration[..,k], 1)
///
/// A row's draw depends on its concentrations, the key and the row's number only. Entries are in
/// [0, 1] and add up to 1 within the rounding of the dtype (1e-7 in f32). Concentrations must be
/// positive and finite; a zero is taken as the limit (a share of 0); a row of zeros or with another
/// value is NaN.
///
/// Shapes  concentration: (..., K), K >= 1 -> (..., K)
/// DTypes  f32, bf16, f64; computed in f64
/// Grads   concentration, by implicit differentiation of the draw, unbiased for every row:
///         a_k (g_k - sum_j a_j g_j) * d log z_k / d concentration_k; none to the key
/// Cost    about 120 ns per entry forward, 150 ns backward; saves concentration and log z in f64
/// Throws  ArgumentError (undefined), DTypeError, ShapeError (rank 0, K = 0)
/// Source  Figurnov, Mohamed, Mnih 2018, arXiv:1805.08498, section 4, here in log space
Tensor dirichlet_sample(const Tensor& concentration, PhiloxKey key);

/// Mean of Dir(concentration[..,:]).
///
///   out[..,k] = concentration[..,k] / sum_j concentration[..,j]
///
/// Shapes, DTypes, Throws as dirichlet_sample; Grads concentration
Tensor dirichlet_mean(const Tensor& concentration);

/// Divergence KL(Dir(q) || Dir(p)) in nats.
///
///   out[..] = log G(S) - log G(R) - sum_k (log G(q_k) - log G(p_k))
///           + sum_k (q_k - p_k) (psi(q_k) - psi(S)),   S = sum_k q_k, R = sum_k p_k, G = Gamma
///
/// Exactly 0 where q equals p.
///
/// Shapes  q: (..., K), K >= 1; p: the shape of q, or (K) for all rows -> (...)
/// DTypes  f32, bf16, f64, equal; computed in f64
/// Grads   q, p (a shared p: summed over rows in f64 in a fixed order)
/// Cost    about 250 ns per entry forward or backward
/// Throws  ArgumentError (undefined), DTypeError, DeviceError, ShapeError
/// Source  arXiv:2605.28384 (objective of the controller)
Tensor dirichlet_kl(const Tensor& q, const Tensor& p);

/// Differential entropy of Dir(concentration[..,:]) in nats; at most -log((K-1)!), so negative for
/// K >= 3, and unbounded below.
///
///   out[..] = sum_k log G(c_k) - log G(S) + (S - K) psi(S) - sum_k (c_k - 1) psi(c_k)
///
/// Shapes  concentration: (..., K), K >= 1 -> (...)
/// DTypes, Throws as dirichlet_sample; Grads concentration
Tensor dirichlet_entropy(const Tensor& concentration);

/// One category per row, drawn in proportion to `probs`.
///
///   out[..] = the first k with u * sum_j probs[..,j] < probs[..,0] + .. + probs[..,k]
///
/// u in (0, 1) is a function of the key and the row's number. Rows need not add up to 1. A category
/// of probability 0 is never drawn. A row that is no distribution (all zero, or with a negative,
/// infinite or NaN entry) gives -1, which routing_index takes for a dropped token.
///
/// Shapes  probs: (..., K), K >= 1 -> (...) i32
/// DTypes  f32, bf16, f64 (sums in f64)
/// Grads   none
/// Throws  ArgumentError (undefined), DTypeError, ShapeError (rank 0, K = 0)
Tensor categorical_sample(const Tensor& probs, PhiloxKey key);

}  // namespace sluice::ops
