#pragma once
/// @file
/// Loops over the rows of [N, C].

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/parallel_for.h"
#include "core/tensor.h"

namespace stagecoach::cpu {

/// Calls body(start, width) for every row of `x`: its elements are start … start+width-1.
template <class Body>
void for_each_row(const Tensor& x, const Body& body) {
  const std::int64_t width = x.size(1);
  parallel_for(x.device(), x.size(0), [&](std::int64_t n) { body(n * width, width); });
}

/// log(sum of exp(row)), with the largest taken out first so that nothing overflows.
template <class T>
T log_sum_exp(const T* row, std::int64_t width) {
  const T largest = *std::max_element(row, row + width);
  T sum = 0;
  for (std::int64_t c = 0; c < width; ++c) {
    sum += std::exp(row[c] - largest);
  }
  return largest + std::log(sum);
}

}  // namespace stagecoach::cpu
