// Dirichlet distributions, one per row of K concentrations: draws and their gradient, mean,
// divergence and entropy. All arithmetic is f64 (the data are a few numbers per token), stored in
// the dtype of the concentrations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/context.h"
#include "engine/dtype.h"

namespace sluice::kernels {

/// out[r,:] = softmax(log_z[r,:]), where log_z holds gamma draws (kernels/gamma.h).
struct DirichletSample {
  const double* log_z;  // (rows, categories)
  void* out;            // (rows, categories)
  DType dtype;          // of out
  int64_t rows, categories;
};
void dirichlet_sample(CpuContext& context, const DirichletSample& args);

/// grad_concentration[r,k] = a_k (g_k - sum_j a_j g_j) * m(concentration[r,k], z_k), with
/// a = softmax(log_z[r,:]) and g = grad[r,:].
struct DirichletSampleBackward {
  const void* concentration;  // (rows, categories)
  const double* log_z;        // (rows, categories)
  const void* grad;           // (rows, categories)
  void* grad_concentration;   // (rows, categories)
  DType dtype;
  int64_t rows, categories;
};
void dirichlet_sample_backward(CpuContext& context, const DirichletSampleBackward& args);

/// out[r,k] = concentration[r,k] / sum_j concentration[r,j]
struct DirichletMean {
  const void* concentration;  // (rows, categories)
  void* out;                  // (rows, categories)
  DType dtype;
  int64_t rows, categories;
};
void dirichlet_mean(CpuContext& context, const DirichletMean& args);

/// grad_concentration[r,k] = (grad[r,k] - sum_j grad[r,j] mean_j) / sum_j concentration[r,j]
struct DirichletMeanBackward {
  const void* concentration;  // (rows, categories)
  const void* grad;           // (rows, categories)
  void* grad_concentration;   // (rows, categories)
  DType dtype;
  int64_t rows, categories;
};
void dirichlet_mean_backward(CpuContext& context, const DirichletMeanBackward& args);

/// out[r] = KL(Dir(q[r,:]) || Dir(p[r,:])); one row of p serves all when p_shared.
struct DirichletKl {
  const void* q;  // (rows, categories)
  const void* p;  // (rows, categories) or (categories)
  void* out;      // (rows)
  DType dtype;
  int64_t rows, categories;
  bool p_shared;
};
void dirichlet_kl(CpuContext& context, const DirichletKl& args);

/// Gradients of the above; grad_q or grad_p may be null.
struct DirichletKlBackward {
  const void* q;     // (rows, categories)
  const void* p;     // (rows, categories) or (categories)
  const void* grad;  // (rows)
  void* grad_q;      // (rows, categories)
  void* grad_p;      // like p
  double* scratch;   // dirichlet_kl_backward_scratch_bytes
  DType dtype;
  int64_t rows, categories;
  bool p_shared;
};
void dirichlet_kl_backward(CpuContext& context, const DirichletKlBackward& args);
/// A shared p has its gradient summed over rows: in one partial per chunk of rows, then in order.
size_t dirichlet_kl_backward_scratch_bytes(const DirichletKlBackward& args);

/// out[r] = differential entropy of Dir(concentration[r,:])
struct DirichletEntropy {
  const void* concentration;  // (rows, categories)
  void* out;                  // (rows)
  DType dtype;
  int64_t rows, categories;
};
void dirichlet_entropy(CpuContext& context, const DirichletEntropy& args);

struct DirichletEntropyBackward {
  const void* concentration;  // (rows, categories)
  const void* grad;           // (rows)
  void* grad_concentration;   // (rows, categories)
  DType dtype;
  int64_t rows, categories;
};
void dirichlet_entropy_backward(CpuContext& context, const DirichletEntropyBackward& args);

}  // namespace sluice::kernels
