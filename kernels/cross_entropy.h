// Cross-entropy of rows of logits against class ids, with an optional penalty on the normaliser.
#pragma once

#include <cstddef>

#include "engine/context.h"
#include "engine/dtype.h"

namespace sluice::kernels {

/// What forward and backward share. A row whose target is `ignored` takes no part.
struct CrossEntropyRows {
  DType dtype;     // of logits
  DType id_dtype;  // of targets: i32 or i64
  int64_t rows, classes;
  const void* logits;  // (rows, classes), rows dense
  int64_t logits_row_stride;
  const void* targets;  // (rows)
  int64_t ignored;
  double z_loss;
};

/// Pointers without a type are f64 for f64 logits, else f32.
struct CrossEntropyForward : CrossEntropyRows {
  void* lse;               // (rows): log sum_v e^logits[v]; not written for ignored rows
  void* losses;            // (rows): loss of each row, 0 for ignored ones; null: not wanted
  void* total;             // (1): sum of the losses; null: not wanted
  bool mean;               // divide the total by the number of rows kept, unless that is 0
  int64_t* kept;           // (1): rows that are not ignored
  int64_t* first_outside;  // (1): first row whose target is no class, or -1
  void* scratch;           // cross_entropy_forward_scratch_bytes
};

/// loss = lse - logits[target] + z_loss * lse^2. Writes nothing but kept and first_outside when a
/// target is no class. A row of -inf has lse -inf and loss +inf.
void cross_entropy_forward(CpuContext& context, const CrossEntropyForward& args);

size_t cross_entropy_forward_scratch_bytes(const CrossEntropyForward& args);

struct CrossEntropyBackward : CrossEntropyRows {
  const void* lse;          // from the forward pass
  const void* grad_losses;  // (rows), or (1) with grad_total
  bool grad_total;          // one gradient for all rows
  const int64_t* kept;      // (1); null: do not divide by it
  void* grad_logits;        // (rows, classes), dense, in dtype
};

/// grad_logits[v] = grad * (e^(logits[v] - lse) * (1 + 2 * z_loss * lse) - [v == target]), 0 in
/// ignored rows and in rows of -inf.
void cross_entropy_backward(CpuContext& context, const CrossEntropyBackward& args);

}  // namespace sluice::kernels
