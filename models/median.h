// The figure that every timing here is reported by.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace sluice {

/// The middle value, the upper of the two for an even count. `values` must not be empty.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace sluice
