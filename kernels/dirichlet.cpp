// Row-wise Dirichlet kernels. Rows are cut in chunks of about kChunkElements numbers, whatever the
// thread count; a row is finished by one thread.
#include "kernels/dirichlet.h"

#include "kernels/gamma.h"
#include "kernels/special.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kChunkElements = 1024;  // at some 100 ns each

struct RowChunks {
  int64_t rows, per_chunk, count;

  RowChunks(int64_t total, int64_t categories, int64_t most = INT64_MAX) : rows(total) {
    per_chunk = kChunkElements / (categories > 0 ? categories : 1);
    if (per_chunk < 1) per_chunk = 1;
    const int64_t least = rows / most + (rows % most != 0 ? 1 : 0);
    if (per_chunk < least) per_chunk = least;
    count = (rows + per_chunk - 1) / per_chunk;
  }
  int64_t begin(int64_t chunk) const { return chunk * per_chunk; }
  int64_t end(int64_t chunk) const {
    return (chunk + 1) * per_chunk < rows ? (chunk + 1) * per_chunk : rows;
  }
};

template <class Body>
void for_each_row(CpuContext& context, int64_t rows, int64_t categories, Body&& body) {
  const RowChunks chunks(rows, categories);
  parallel_for(context.threads, chunks.count, [&](int64_t chunk) {
    for (int64_t row = chunks.begin(chunk); row < chunks.end(chunk); ++row) body(row);
  });
}

template <class T>
T round_to(double value) {
  return static_cast<T>(static_cast<Accumulator<T>>(value));
}

template <class T>
double row_sum(const T* row, int64_t categories) {
  double sum = 0;
  for (int64_t k = 0; k < categories; ++k) sum += static_cast<double>(row[k]);
  return sum;
}

// Softmax of one row of log gammas, entry by entry. The largest is subtracted before the sum is
// divided by: near -1e14 (alpha about 1e-14) the log of the sum would be lost beside it. Rounding
// each share to f32 leaves the sum of a row within 1e-7 of 1.
struct Shares {
  const double* log_z;
  double largest, inverse_sum;

  Shares(const double* row, int64_t categories) : log_z(row), largest(row[0]) {
    for (int64_t k = 1; k < categories; ++k) largest = row[k] > largest ? row[k] : largest;
    double sum = 0;
    for (int64_t k = 0; k < categories; ++k) sum += reproducible_exp(row[k] - largest);
    inverse_sum = 1.0 / sum;
  }
  double operator[](int64_t k) const { return reproducible_exp(log_z[k] - largest) * inverse_sum; }
};

constexpr int64_t kMaxPartials = 64;
RowChunks partial_chunks(const DirichletKlBackward& args) {
  return RowChunks(args.rows, args.categories, kMaxPartials);
}

}  // namespace

void dirichlet_sample(CpuContext& context, const DirichletSample& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    for_each_row(context, args.rows, args.categories, [&](int64_t row) {
      const double* log_z = args.log_z + row * args.categories;
      T* out = static_cast<T*>(args.out) + row * args.categories;
      const Shares shares(log_z, args.categories);
      for (int64_t k = 0; k < args.categories; ++k) {
        out[k] = round_to<T>(shares[k]);
      }
    });
  });
}

void dirichlet_sample_backward(CpuContext& context, const DirichletSampleBackward& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    for_each_row(context, args.rows, args.categories, [&](int64_t row) {
      const int64_t base = row * args.categories;
      const T* alpha = static_cast<const T*>(args.concentration) + base;
      const T* grad = static_cast<const T*>(args.grad) + base;
      const double* log_z = args.log_z + base;
      T* out = static_cast<T*>(args.grad_concentration) + base;
      const Shares shares(log_z, args.categories);
      double inner = 0;
      for (int64_t k = 0; k < args.categories; ++k) {
        inner += shares[k] * static_cast<double>(grad[k]);
      }
      for (int64_t k = 0; k < args.categories; ++k) {
        const double weight = shares[k] * (static_cast<double>(grad[k]) - inner);
        // m grows like 1 / alpha^2 and may be infinite where the share itself is 0.
        out[k] = weight == 0
                     ? T(0.0f)
                     : round_to<T>(
                           weight * gamma_log_derivative(static_cast<double>(alpha[k]), log_z[k]));
      }
    });
  });
}

void dirichlet_mean(CpuContext& context, const DirichletMean& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    for_each_row(context, args.rows, args.categories, [&](int64_t row) {
      const T* alpha = static_cast<const T*>(args.concentration) + row * args.categories;
      T* out = static_cast<T*>(args.out) + row * args.categories;
      const double total = row_sum(alpha, args.categories);
      for (int64_t k = 0; k < args.categories; ++k) {
        out[k] = round_to<T>(static_cast<double>(alpha[k]) / total);
      }
    });
  });
}

void dirichlet_mean_backward(CpuContext& context, const DirichletMeanBackward& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    for_each_row(context, args.rows, args.categories, [&](int64_t row) {
      const int64_t base = row * args.categories;
      const T* alpha = static_cast<const T*>(args.concentration) + base;
      const T* grad = static_cast<const T*>(args.grad) + base;
      T* out = static_cast<T*>(args.grad_concentration) + base;
      const double total = row_sum(alpha, args.categories);
      double inner = 0;
      for (int64_t k = 0; k < args.categories; ++k) {
        inner += static_cast<double>(grad[k]) * (static_cast<double>(alpha[k]) / total);
      }
      for (int64_t k = 0; k < args.categories; ++k) {
        out[k] = round_to<T>((static_cast<double>(grad[k]) - inner) / total);
      }
    });
  });
}

void dirichlet_kl(CpuContext& context, const DirichletKl& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    for_each_row(context, args.rows, args.categories, [&](int64_t row) {
      const T* q = static_cast<const T*>(args.q) + row * args.categories;
      const T* p = static_cast<const T*>(args.p) + (args.p_shared ? 0 : row * args.categories);
      const double q_total = row_sum(q, args.categories);
      const double digamma_total = digamma(q_total);
      // Differences are taken term by term, so q = p gives exactly 0.
      double sum = log_gamma(q_total) - log_gamma(row_sum(p, args.categories));
      for (int64_t k = 0; k < args.categories; ++k) {
        const auto qk = static_cast<double>(q[k]);
        const auto pk = static_cast<double>(p[k]);
        sum -= log_gamma(qk) - log_gamma(pk);
        sum += (qk - pk) * (digamma(qk) - digamma_total);
      }
      static_cast<T*>(args.out)[row] = round_to<T>(sum);
    });
  });
}

size_t dirichlet_kl_backward_scratch_bytes(const DirichletKlBackward& args) {
  if (args.grad_p == nullptr || !args.p_shared) return 0;
  return static_cast<size_t>(partial_chunks(args).count * args.categories) * sizeof(double);
}

void dirichlet_kl_backward(CpuContext& context, const DirichletKlBackward& args) {
  const int64_t K = args.categories;
  const RowChunks chunks = partial_chunks(args);
  dispatch_floating(args.dtype, [&]<class T>() {
    const auto* grad = static_cast<const T*>(args.grad);
    auto* grad_p = static_cast<T*>(args.grad_p);
    parallel_for(context.threads, chunks.count, [&](int64_t chunk) {
      double* partial = grad_p != nullptr && args.p_shared ? args.scratch + chunk * K : nullptr;
      for (int64_t k = 0; partial != nullptr && k < K; ++k) partial[k] = 0;
      for (int64_t row = chunks.begin(chunk); row < chunks.end(chunk); ++row) {
        const T* q = static_cast<const T*>(args.q) + row * K;
        const T* p = static_cast<const T*>(args.p) + (args.p_shared ? 0 : row * K);
        const auto g = static_cast<double>(grad[row]);
        const double q_total = row_sum(q, K);
        const double p_total = row_sum(p, K);
        if (args.grad_q != nullptr) {
          T* grad_q = static_cast<T*>(args.grad_q) + row * K;
          const double common = (q_total - p_total) * trigamma(q_total);
          for (int64_t k = 0; k < K; ++k) {
            const auto qk = static_cast<double>(q[k]);
            grad_q[k] = round_to<T>(g * ((qk - static_cast<double>(p[k])) * trigamma(qk) - common));
          }
        }
        if (grad_p != nullptr) {
          const double common = digamma(q_total) - digamma(p_total);
          for (int64_t k = 0; k < K; ++k) {
            const double slope =
                digamma(static_cast<double>(p[k])) - digamma(static_cast<double>(q[k])) + common;
            if (partial != nullptr)
              partial[k] += g * slope;
            else
              grad_p[row * K + k] = round_to<T>(g * slope);
          }
        }
      }
    });
    if (grad_p == nullptr || !args.p_shared) return;
    for (int64_t k = 0; k < K; ++k) {
      double sum = 0;
      for (int64_t chunk = 0; chunk < chunks.count; ++chunk) sum += args.scratch[chunk * K + k];
      grad_p[k] = round_to<T>(sum);
    }
  });
}

void dirichlet_entropy(CpuContext& context, const DirichletEntropy& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    for_each_row(context, args.rows, args.categories, [&](int64_t row) {
      const T* alpha = static_cast<const T*>(args.concentration) + row * args.categories;
      const double total = row_sum(alpha, args.categories);
      double sum = (total - static_cast<double>(args.categories)) * digamma(total);
      sum -= log_gamma(total);
      for (int64_t k = 0; k < args.categories; ++k) {
        const auto a = static_cast<double>(alpha[k]);
        sum += log_gamma(a) - (a - 1.0) * digamma(a);
      }
      static_cast<T*>(args.out)[row] = round_to<T>(sum);
    });
  });
}

void dirichlet_entropy_backward(CpuContext& context, const DirichletEntropyBackward& args) {
  dispatch_floating(args.dtype, [&]<class T>() {
    for_each_row(context, args.rows, args.categories, [&](int64_t row) {
      const T* alpha = static_cast<const T*>(args.concentration) + row * args.categories;
      T* out = static_cast<T*>(args.grad_concentration) + row * args.categories;
      const auto g = static_cast<double>(static_cast<const T*>(args.grad)[row]);
      const double total = row_sum(alpha, args.categories);
      const double common = (total - static_cast<double>(args.categories)) * trigamma(total);
      for (int64_t k = 0; k < args.categories; ++k) {
        const auto a = static_cast<double>(alpha[k]);
        out[k] = round_to<T>(g * (common - (a - 1.0) * trigamma(a)));
      }
    });
  });
}

}  // namespace sluice::kernels
