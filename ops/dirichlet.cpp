#include "ops/dirichlet.h"

#include "autograd/node.h"
#include "engine/context.h"
#include "kernels/categorical_sample.h"
#include "kernels/dirichlet.h"
#include "kernels/gamma.h"
#include "ops/require.h"

namespace sluice::ops {
namespace {

// Rows of one distribution each, the last axis being its categories.
struct Rows {
  int64_t rows, categories;
  Shape leading;
};

Rows rows_of(const char* op, const char* name, const Tensor& tensor) {
  check_floating(tensor, op, name);
  const int rank = tensor.rank();
  SLUICE_CHECK(
      rank >= 1 && tensor.size(-1) >= 1,
      ShapeError,
      "{}: {} must have a last axis of at least 1 category, got {}",
      op,
      name,
      to_string(tensor.shape()));
  const int64_t categories = tensor.size(-1);
  return {
      tensor.numel() / categories,
      categories,
      Shape(tensor.shape().dims().first(size_t(rank - 1)))};
}

Tensor draw_log_gammas(const char* op, const Tensor& alpha, PhiloxKey key) {
  const Tensor log_z = empty(alpha.shape(), {DType::f64, alpha.device()});
  const kernels::GammaLogSample args{
      alpha.raw(), log_z.data<double>(), alpha.dtype(), alpha.numel(), key};
  SLUICE_LAUNCH(alpha.device(), op, kernels::gamma_log_sample, args);
  return log_z;
}

struct GammaLogSample final : autograd::Node {
  GammaLogSample(const Tensor& input, const Tensor& alpha, const Tensor& log_z)
      : Node("gamma_log_sample", {input}) {
    save({alpha, log_z});
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor& alpha = saved(0);
    const Tensor grad = to_contiguous(grads[0]);
    const Tensor grad_alpha = empty_like(alpha);
    const kernels::GammaLogSampleBackward args{
        .alpha = alpha.raw(),
        .log_z = saved(1).data<double>(),
        .grad = grad.raw(),
        .grad_alpha = grad_alpha.raw(),
        .dtype = alpha.dtype(),
        .count = alpha.numel()};
    SLUICE_LAUNCH(alpha.device(), name(), kernels::gamma_log_sample_backward, args);
    return {grad_alpha};
  }
};

struct DirichletSample final : autograd::Node {
  DirichletSample(const Tensor& input, const Tensor& concentration, const Tensor& log_z)
      : Node("dirichlet_sample", {input}) {
    save({concentration, log_z});
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor& concentration = saved(0);
    const Tensor grad = to_contiguous(grads[0]);
    const Tensor grad_concentration = empty_like(concentration);
    const kernels::DirichletSampleBackward args{
        .concentration = concentration.raw(),
        .log_z = saved(1).data<double>(),
        .grad = grad.raw(),
        .grad_concentration = grad_concentration.raw(),
        .dtype = concentration.dtype(),
        .rows = concentration.numel() / concentration.size(-1),
        .categories = concentration.size(-1)};
    SLUICE_LAUNCH(concentration.device(), name(), kernels::dirichlet_sample_backward, args);
    return {grad_concentration};
  }
};

// Mean and entropy differ in their kernels only: Args is DirichletMeanBackward or
// DirichletEntropyBackward, `launch` its kernel.
template <class Args>
struct FromConcentration final : autograd::Node {
  using Launch = void (*)(Device, const char*, const Args&);

  FromConcentration(const char* op, const Tensor& input, const Tensor& concentration, Launch kernel)
      : Node(op, {input}), launch(kernel) {
    save({concentration});
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor& concentration = saved(0);
    const Tensor grad = to_contiguous(grads[0]);
    const Tensor grad_concentration = empty_like(concentration);
    launch(
        concentration.device(),
        name(),
        {.concentration = concentration.raw(),
         .grad = grad.raw(),
         .grad_concentration = grad_concentration.raw(),
         .dtype = concentration.dtype(),
         .rows = concentration.numel() / concentration.size(-1),
         .categories = concentration.size(-1)});
    return {grad_concentration};
  }

  Launch launch;
};

struct DirichletKl final : autograd::Node {
  DirichletKl(
      std::initializer_list<Tensor> inputs, const Tensor& q, const Tensor& p, const Rows& extents)
      : Node("dirichlet_kl", inputs), rows(extents) {
    save({q, p});
  }

  std::vector<Tensor> backward(std::span<const Tensor> grads) override {
    const Tensor& q = saved(0);
    const Tensor& p = saved(1);
    const Tensor grad = to_contiguous(grads[0]);
    const Tensor grad_q = needs(0) ? empty_like(q) : Tensor();
    const Tensor grad_p = needs(1) ? empty_like(p) : Tensor();
    kernels::DirichletKlBackward args{
        .q = q.raw(),
        .p = p.raw(),
        .grad = grad.raw(),
        .grad_q = grad_q.defined() ? grad_q.raw() : nullptr,
        .grad_p = grad_p.defined() ? grad_p.raw() : nullptr,
        .scratch = nullptr,
        .dtype = q.dtype(),
        .rows = rows.rows,
        .categories = rows.categories,
        .p_shared = !(p.shape() == q.shape())};
    const auto bytes = int64_t(kernels::dirichlet_kl_backward_scratch_bytes(args));
    const Tensor scratch = empty({bytes / int64_t(sizeof(double))}, {DType::f64, q.device()});
    args.scratch = scratch.data<double>();
    SLUICE_LAUNCH(q.device(), name(), kernels::dirichlet_kl_backward, args);
    return {grad_q, grad_p};
  }

  Rows rows;
};

}  // namespace

Tensor gamma_log_sample(const Tensor& alpha, PhiloxKey key) {
  check_floating(alpha, "gamma_log_sample", "alpha");
  const Tensor dense = to_contiguous(alpha);
  const Tensor log_z = draw_log_gammas("gamma_log_sample", dense, key);
  // In f64 the result is the saved draw itself; writing to it in place then shows in backward.
  const Tensor out = to_dtype(log_z, alpha.dtype());
  if (autograd::should_record({alpha})) {
    autograd::record<GammaLogSample>(out, alpha, dense, log_z);
  }
  return out;
}

Tensor dirichlet_sample(const Tensor& concentration, PhiloxKey key) {
  const Rows rows = rows_of("dirichlet_sample", "concentration", concentration);
  const Tensor dense = to_contiguous(concentration);
  const Tensor log_z = draw_log_gammas("dirichlet_sample", dense, key);
  const Tensor out = empty_like(dense);
  const kernels::DirichletSample args{
      log_z.data<double>(), out.raw(), out.dtype(), rows.rows, rows.categories};
  SLUICE_LAUNCH(out.device(), "dirichlet_sample", kernels::dirichlet_sample, args);
  if (autograd::should_record({concentration})) {
    autograd::record<DirichletSample>(out, concentration, dense, log_z);
  }
  return out;
}

Tensor dirichlet_mean(const Tensor& concentration) {
  const Rows rows = rows_of("dirichlet_mean", "concentration", concentration);
  const Tensor dense = to_contiguous(concentration);
  const Tensor out = empty_like(dense);
  const kernels::DirichletMean args{
      dense.raw(), out.raw(), out.dtype(), rows.rows, rows.categories};
  SLUICE_LAUNCH(out.device(), "dirichlet_mean", kernels::dirichlet_mean, args);
  if (autograd::should_record({concentration})) {
    using Args = kernels::DirichletMeanBackward;
    autograd::record<FromConcentration<Args>>(
        out, "dirichlet_mean", concentration, dense, [](Device on, const char* op, const Args& a) {
          SLUICE_LAUNCH(on, op, kernels::dirichlet_mean_backward, a);
        });
  }
  return out;
}

Tensor dirichlet_kl(const Tensor& q, const Tensor& p) {
  const Rows rows = rows_of("dirichlet_kl", "q", q);
  check_like(p, q, "dirichlet_kl", "p");
  SLUICE_CHECK(
      p.shape() == q.shape() || p.shape() == Shape{rows.categories},
      ShapeError,
      "dirichlet_kl: p must have shape {} or ({}), got {}",
      to_string(q.shape()),
      rows.categories,
      to_string(p.shape()));
  const Tensor dense_q = to_contiguous(q);
  const Tensor dense_p = to_contiguous(p);
  const Tensor out = empty(rows.leading, {q.dtype(), q.device()});
  const kernels::DirichletKl args{
      .q = dense_q.raw(),
      .p = dense_p.raw(),
      .out = out.raw(),
      .dtype = q.dtype(),
      .rows = rows.rows,
      .categories = rows.categories,
      .p_shared = !(p.shape() == q.shape())};
  SLUICE_LAUNCH(q.device(), "dirichlet_kl", kernels::dirichlet_kl, args);
  if (autograd::should_record({q, p})) {
    autograd::record<DirichletKl>(out, std::initializer_list<Tensor>{q, p}, dense_q, dense_p, rows);
  }
  return out;
}

Tensor dirichlet_entropy(const Tensor& concentration) {
  const Rows rows = rows_of("dirichlet_entropy", "concentration", concentration);
  const Tensor dense = to_contiguous(concentration);
  const Tensor out = empty(rows.leading, {dense.dtype(), dense.device()});
  const kernels::DirichletEntropy args{
      dense.raw(), out.raw(), out.dtype(), rows.rows, rows.categories};
  SLUICE_LAUNCH(out.device(), "dirichlet_entropy", kernels::dirichlet_entropy, args);
  if (autograd::should_record({concentration})) {
    using Args = kernels::DirichletEntropyBackward;
    autograd::record<FromConcentration<Args>>(
        out,
        "dirichlet_entropy",
        concentration,
        dense,
        [](Device on, const char* op, const Args& a) {
          SLUICE_LAUNCH(on, op, kernels::dirichlet_entropy_backward, a);
        });
  }
  return out;
}

Tensor categorical_sample(const Tensor& probs, PhiloxKey key) {
  const Rows rows = rows_of("categorical_sample", "probs", probs);
  const Tensor dense = to_contiguous(probs);
  const Tensor out = empty(rows.leading, {DType::i32, probs.device()});
  const kernels::CategoricalSample args{
      .probs = dense.raw(),
      .out = out.data<int32_t>(),
      .dtype = probs.dtype(),
      .rows = rows.rows,
      .categories = rows.categories,
      .key = key};
  SLUICE_LAUNCH(probs.device(), "categorical_sample", kernels::categorical_sample, args);
  return out;
}

}  // namespace sluice::ops
