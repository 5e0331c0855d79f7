#pragma once
/// @file
/// The median: the typical value of measurements of which a few may be far off.

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

namespace stagecoach {

/// Returns the median: for an even number of values, the mean of the middle two; for no values, nothing.
inline std::optional<double> median(std::vector<double> values) {
  if (values.empty()) {
    return std::nullopt;
  }
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace stagecoach
