// Gradients of one chunk. With den the denominator of a query, n = grad_out / den and
// b = -(grad_out . out) / den:
//
//   grad phi(q_i) = sum_{j <= i} (n_i . v_j + b_i) phi(k_j)
//   grad phi(k_j) = sum_{i >= j} (n_i . v_j + b_i) phi(q_i)
//   grad v_j      = sum_{i >= j} (phi(q_i) . phi(k_j)) n_i
//
// Keys before the chunk enter through the state of the forward pass, here transposed (rows v by
// columns phi(k)), queries behind it through the suffix state sum_i phi(q_i) [n_i, b_i]^T.
#pragma once

#include "kernels/linear_attention_task.h"

namespace sluice::kernels::SLUICE_ISA::linear {

template <class T, int Padded>
struct ChunkGradients : Task<LinearAttentionBackward, T, Padded, StateRows::v> {
  using Base = Task<LinearAttentionBackward, T, Padded, StateRows::v>;
  using Base::args, Base::chunk, Base::kv_head, Base::s, Base::sequence, Base::shift;
  using Base::Base;
  using typename Base::A;
  using typename Base::V;

  bool wants_q() const { return args.grad_q.data != nullptr; }
  bool wants_kv() const { return args.grad_k.data != nullptr || args.grad_v.data != nullptr; }

  /// phi_q, q_lanes and with them grad, grad_lanes and pull of the queries of `run`.
  void pack_query_grads(int head, QueryRun run, int64_t begin) {
    const Buffers<A>& at = chunk.at;
    const int padded = chunk.padded();
    chunk.pack_queries(args.q, sequence, head, run, begin);
    const int lanes = lanes_for<A>(chunk.count);
    for (int n = 0; n < chunk.count; ++n) {
      A* grad = at.grad + n * padded;
      const int64_t index = run.first + n;
      chunk.prefetch_query(args.grad_out, sequence, head, index);
      chunk.prefetch_query(args.out, sequence, head, index);
      const A normalizer = static_cast<const A*>(
          args.normalizer.data)[args.query_offset(args.normalizer, sequence, head, index)];
      if (normalizer == A(0)) {
        zero_rows(grad, padded);
        at.pull[n] = A(0);
        continue;
      }
      const V factor = V::broadcast(A(1) / normalizer);
      const T* from = static_cast<const T*>(args.grad_out.data) +
                      args.query_offset(args.grad_out, sequence, head, index);
      const T* out =
          static_cast<const T*>(args.out.data) + args.query_offset(args.out, sequence, head, index);
      V product = V::zero();
      chunk.pack_row(
          from, A(0), grad, [&](V x) __attribute__((always_inline)) { return x * factor; });
      for_each_vector<T>(
          args.head_size, [&](int64_t d, int count) __attribute__((always_inline)) {
            product += load(grad + d) * load_count(out + d, count);
          });
      at.pull[n] = -reduce_add(product);
    }
    zero_rows(at.grad + chunk.count * padded, (lanes - chunk.count) * padded);
    for (int n = chunk.count; n < lanes; ++n) at.pull[n] = A(0);
    chunk.to_lanes(at.grad, at.grad_lanes);
  }

  /// One head's queries at the packed keys (when `near`), with the transposed state of the keys
  /// before them (unless null); adds them to grad_phi_k and grad_v, and to the suffix if `extend`.
  void differentiate(
      int head, QueryRun run, int64_t begin, bool near, const A* columns, bool extend) {
    const Buffers<A>& at = chunk.at;
    const Products<A, Padded>& products = chunk.products;
    const int padded = chunk.padded();
    const int64_t square = int64_t{padded} * padded;
    pack_query_grads(head, run, begin);
    if (near) {
      products.scores(
          at.v,
          chunk.keys,
          at.grad_lanes,
          at.position,
          chunk.count,
          at.pull,
          at.grad_scores,
          nullptr);
    }
    if (wants_q()) {
      products.rows_of_lanes(
          chunk.count,
          at.position,
          near ? at.grad_scores : nullptr,
          at.phi_k,
          at.grad_lanes,
          columns,
          [&](auto& tile, int n, int c) __attribute__((always_inline)) {
            tile.for_each([&](int r, int v, V value) __attribute__((always_inline)) {
              const int column = c + v * V::kLanes;
              if (columns != nullptr) {
                value += V::broadcast(at.pull[n + r]) * load(columns + square + column);
              }
              const V phi = load(at.phi_q + (n + r) * padded + column);
              store(
                  at.rows + (n + r) * padded + column,
                  value * slope(phi, V::broadcast(at.lift[n + r])));
            });
          });
      chunk.write_queries(args.grad_q, sequence, head, run);
    }
    if (!wants_kv()) return;
    if (near) {
      products.scores(
          at.phi_k, chunk.keys, at.q_lanes, at.position, chunk.count, nullptr, at.scores, nullptr);
      products.add_rows_of_keys(
          at.grad_scores, at.phi_q, at.position, chunk.count, chunk.keys, at.grad_phi_k);
      products.add_rows_of_keys(
          at.scores, at.grad, at.position, chunk.count, chunk.keys, at.grad_v);
    }
    if (extend) extend_suffix(at.suffix);
  }

  /// suffix += the packed queries.
  SLUICE_INLINE void extend_suffix(A* suffix) const {
    const Buffers<A>& at = chunk.at;
    const int64_t square = int64_t{chunk.padded()} * chunk.padded();
    chunk.products.add_outer(at.phi_q, at.grad, chunk.count, suffix, suffix);
    chunk.products.add_weighted_rows(
        at.pull, at.phi_q, chunk.count, suffix + square, suffix + square);
  }

  /// grad_phi_k and grad_v of the packed keys start from the queries behind, or from zero.
  void start_key_grads(bool behind) {
    const Buffers<A>& at = chunk.at;
    const int padded = chunk.padded();
    if (!behind) {
      const int rows = (chunk.keys + kTileRows - 1) / kTileRows * kTileRows;
      zero_rows(at.grad_phi_k, rows * padded);
      zero_rows(at.grad_v, rows * padded);
      return;
    }
    transpose_square(at.suffix, at.suffix_columns);
    const A* sum = at.suffix + int64_t{padded} * padded;
    chunk.products.multiply(at.v, chunk.keys, at.suffix_columns, sum, at.grad_phi_k);
    chunk.products.multiply(at.phi_k, chunk.keys, at.suffix, nullptr, at.grad_v);
  }

  SLUICE_INLINE void transpose_square(const A* from, A* to) const {
    const int padded = chunk.padded();
    for (int i = 0; i < padded; i += V::kLanes) {
      for (int j = 0; j < padded; j += V::kLanes) {
        transpose_block(from + i * padded + j, padded, to + j * padded + i, padded);
      }
    }
  }

  /// Gradients of k and v at keys [begin, begin + chunk.keys).
  template <class G>
  void write_keys(int64_t begin) const {
    const Buffers<A>& at = chunk.at;
    const int padded = chunk.padded();
    const V one = V::broadcast(A(1));
    for (int j = 0; j < chunk.keys; ++j) {
      A* grad_k = at.grad_phi_k + j * padded;
      for (int d = 0; d < padded; d += V::kLanes) {
        store(grad_k + d, load(grad_k + d) * slope(load(at.phi_k + j * padded + d), one));
      }
      const int64_t row = s.key_row + begin + j;
      write_key<G>(grad_k, args.grad_k, row);
      write_key<G>(at.grad_v + j * padded, args.grad_v, row);
    }
  }

  template <class G>
  SLUICE_INLINE void write_key(const A* from, const HeadRows& grad, int64_t row) const {
    if (grad.data == nullptr) return;
    G* to = static_cast<G*>(grad.data) + grad.offset(s.batch, kv_head, row);
    for_each_vector<G>(
        args.head_size, [&](int64_t d, int count) __attribute__((always_inline)) {
          V value = load(from + d);
          if (args.accumulate) value += load_count(to + d, count);
          store_count(to + d, value, count);
        });
  }

  /// In the dtype of the gradients, which differs from T when calls add up bf16 ones.
  SLUICE_INLINE void finish_keys(int64_t begin) const {
    if (args.kv_grad_dtype == args.dtype)
      write_keys<T>(begin);
    else
      write_keys<A>(begin);
  }
};

}  // namespace sluice::kernels::SLUICE_ISA::linear
