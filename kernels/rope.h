// Rotary position embedding: the table of angles, and the rotation of rows by it.
#pragma once

#include "engine/context.h"
#include "engine/dtype.h"
#include "kernels/row_strides.h"

namespace sluice::kernels {

/// Fills cosines and sines of position * theta^(-2i/D). Angles and functions are f64; entries are
/// f64 for f64 rows and f32 for the others.
struct RopeTable {
  DType dtype;     // of the rows that the table is for
  int64_t tokens;  // T
  int64_t width;   // D, even
  double theta;
  int64_t offset;            // position of token 0 when positions is null
  const int32_t* positions;  // (T); may be null
  void* cosines;             // (T, D/2)
  void* sines;               // (T, D/2)
  double* scratch;           // rope_table_scratch_bytes
};

/// One sine and cosine cost about 40 ns in f64, more than the rotation of all rows of a layer. So
/// when positions are dense enough, those of every 64th position and of 0..63 are computed, and the
/// rest follows from cos(a + b) = cos a cos b - sin a sin b to the last f64 bits.
void rope_table(CpuContext& context, const RopeTable& args);
size_t rope_table_scratch_bytes(const RopeTable& args);

struct Rope {
  DType dtype;
  int64_t batch, heads, tokens;  // B, H, T
  int64_t width;                 // D, even
  const void* x;                 // (B, H, T, D)
  RowStrides x_strides;
  void* out;  // (B, H, T, D)
  RowStrides out_strides;
  const void* cosines;  // (T, D/2)
  const void* sines;    // (T, D/2)
  bool inverse;         // rotate back, which is also the gradient
};

/// out[i] = x[i] cos - x[i + D/2] sin, out[i + D/2] = x[i + D/2] cos + x[i] sin, i < D/2.
void rope(CpuContext& context, const Rope& args);

}  // namespace sluice::kernels
