// The layout of attention-like tensors: (B, H, T, D) seen, (B, T, H, D) stored.
#pragma once

#include "engine/tensor.h"
#include "kernels/row_strides.h"

namespace sluice::ops {

/// A fresh (B, H, T, D) view of dense (B, T, H, D) memory, so that permuting back and merging the
/// heads to (B, T, C) costs nothing. `shape` is (B, H, T, D).
inline Tensor empty_heads(const Shape& shape, TensorOptions options) {
  const int64_t heads = shape[1], tokens = shape[2], width = shape[3];
  const Tensor memory = empty({shape[0], tokens, heads, width}, options);
  return memory.alias(shape, {tokens * heads * width, width, heads * width, 1}, 0);
}

/// The same, filled with zeros.
inline Tensor zero_heads(const Shape& shape, TensorOptions options) {
  const int64_t heads = shape[1], tokens = shape[2], width = shape[3];
  const Tensor memory = zeros({shape[0], tokens, heads, width}, options);
  return memory.alias(shape, {tokens * heads * width, width, heads * width, 1}, 0);
}

/// For results that a kernel fills: fresh memory when it covers every row, zeros when it writes
/// only the rows that take part.
inline Tensor new_heads(const Shape& shape, TensorOptions options, bool covered) {
  return covered ? empty_heads(shape, options) : zero_heads(shape, options);
}
inline Tensor new_heads(const Tensor& like, bool covered) {
  return new_heads(like.shape(), {like.dtype(), like.device()}, covered);
}

/// Where the rows of a (B, H, T, D) tensor lie.
inline kernels::RowStrides row_strides(const Tensor& tensor) {
  return {tensor.stride(0), tensor.stride(1), tensor.stride(2)};
}

/// `tensor` itself when its last axis is dense, as the kernels need it, else a dense copy.
inline Tensor with_dense_rows(const Tensor& tensor) {
  return tensor.stride(-1) == 1 || tensor.size(-1) == 1 ? tensor : clone(tensor);
}

}  // namespace sluice::ops
