// Tensors as GEMM operands, and the one place where ops start a GEMM.
#pragma once

#include "engine/tensor.h"
#include "kernels/gemm.h"

namespace sluice::ops {

/// A tensor whose last axis is dense and whose other axes are one axis of equally spaced rows.
struct Rows {
  Tensor tensor;  // keeps the memory
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;  // elements between rows
};

/// `tensor` (rank >= 1) as rows without a copy where its strides allow, else a dense copy.
Rows as_rows(const Tensor& tensor);

/// A matrix in memory, for GemmArgs; `tensor` keeps it alive.
struct GemmOperand {
  Tensor tensor;
  kernels::GemmMatrix matrix;
};

/// The matrix of the last two axes, or its transpose. One of them must be dense, else it is copied.
GemmOperand gemm_operand(const Tensor& tensor, bool transposed);

/// Allocates scratch and launches.
void launch_gemm(const char* op, Device device, kernels::GemmArgs args);

}  // namespace sluice::ops
