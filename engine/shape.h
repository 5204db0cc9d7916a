// Extents of a tensor: up to eight, held inline, product checked against overflow.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace sluice {

inline constexpr int kMaxRank = 8;

/// Distance in elements between neighbours along each axis; only the first rank() entries count.
using Strides = std::array<int64_t, kMaxRank>;

/// Extents, outermost first. A scalar has rank 0 and one element; an extent of 0 is allowed.
/// Construction throws ShapeError on a negative extent, on rank > 8 and when the product of the
/// extents other than 0 does not fit int64.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);  // NOLINT: written as a literal everywhere
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  int64_t numel() const { return numel_; }
  int64_t operator[](int axis) const { return dims_[static_cast<size_t>(axis)]; }
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }

  bool operator==(const Shape& other) const;

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
  int64_t numel_ = 1;
};

/// "(2, 3, 5)"
std::string to_string(const Shape& shape);

/// Strides of a dense row-major tensor.
Strides contiguous_strides(const Shape& shape);

/// Turns a possibly negative axis into 0..rank-1. Throws ShapeError naming `op`.
int normalize_axis(int axis, int rank, const char* op);

/// The shape both broadcast to, aligned at the last axis, extents of 1 repeated.
/// Throws ShapeError naming `op` and both shapes.
Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op);

}  // namespace sluice
