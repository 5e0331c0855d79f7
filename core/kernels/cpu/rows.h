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

/// log(softmax(row)[c]) = (row[c] - largest) - log_sum. The largest is subtracted first, so that nothing overflows, and
/// is kept separate, so that a large common offset costs no digits.
template <class T>
struct LogSoftmax {
  LogSoftmax(const T* row, std::int64_t width) : largest(*std::max_element(row, row + width)) {
    for (std::int64_t c = 0; c < width; ++c) {
      sum += std::exp(row[c] - largest);
    }
    log_sum = std::log(sum);
  }
  LogSoftmax(T largest_, T log_sum_) : largest(largest_), log_sum(log_sum_) {}
  T operator()(T value) const { return (value - largest) - log_sum; }
  T largest;
  T sum = 0;  // of exp(row[c] - largest)
  T log_sum;
};

}  // namespace stagecoach::cpu
