// Construction checks everything once, so that products of extents need no checks later.
#include "engine/shape.h"

#include <algorithm>

#include "engine/errors.h"

namespace sluice {

Shape::Shape(std::initializer_list<int64_t> dims)
    : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) {
  SLUICE_CHECK(
      dims.size() <= static_cast<size_t>(kMaxRank),
      ShapeError,
      "shape: rank must be at most {}, got {}",
      kMaxRank,
      dims.size());
  rank_ = static_cast<int>(dims.size());
  bool overflow = false;
  bool empty = false;
  for (int axis = 0; axis < rank_; ++axis) {
    const int64_t extent = dims[static_cast<size_t>(axis)];
    SLUICE_CHECK(extent >= 0, ShapeError, "shape: extent {} must be >= 0, got {}", axis, extent);
    dims_[static_cast<size_t>(axis)] = extent;
    // Extents of 0 are left out here: strides are products of the others and must fit as well.
    overflow |= __builtin_mul_overflow(numel_, std::max<int64_t>(extent, 1), &numel_);
    empty |= extent == 0;
  }
  SLUICE_CHECK(!overflow, ShapeError, "shape: number of elements must fit in 63 bits");
  if (empty) numel_ = 0;
}

bool Shape::operator==(const Shape& other) const {
  return rank_ == other.rank_ &&
         std::equal(dims_.begin(), dims_.begin() + rank_, other.dims_.begin());
}

std::string to_string(const Shape& shape) {
  std::string text = "(";
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(shape[axis]);
  }
  return text + ")";
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides{};
  int64_t step = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[static_cast<size_t>(axis)] = step;
    step *= std::max<int64_t>(shape[axis], 1);
  }
  return strides;
}

int normalize_axis(int axis, int rank, const char* op) {
  SLUICE_CHECK(
      axis >= -rank && axis < rank,
      ShapeError,
      "{}: axis must be in [{}, {}), got {}",
      op,
      -rank,
      rank,
      axis);
  return axis < 0 ? axis + rank : axis;
}

Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op) {
  std::array<int64_t, kMaxRank> dims{};
  const int rank = std::max(a.rank(), b.rank());
  for (int i = 1; i <= rank; ++i) {
    const int64_t da = i <= a.rank() ? a[a.rank() - i] : 1;
    const int64_t db = i <= b.rank() ? b[b.rank() - i] : 1;
    SLUICE_CHECK(
        da == db || da == 1 || db == 1,
        ShapeError,
        "{}: shapes must broadcast, got {} and {}",
        op,
        to_string(a),
        to_string(b));
    dims[static_cast<size_t>(rank - i)] = da == 1 ? db : da;
  }
  return Shape(std::span<const int64_t>(dims.data(), static_cast<size_t>(rank)));
}

}  // namespace sluice
