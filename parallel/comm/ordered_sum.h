#pragma once
/// @file
/// Sums whose bytes do not depend on who makes them: floating-point addition is not associative, so ranks add up in one
/// order.

#include <cstddef>
#include <vector>

#include "core/tensor.h"

namespace stagecoach {

/// The sum of `parts` [n, …], one per rank, on one device, in the order of the ranks. Those of float16 are added as
/// float32, so that only the sum is rounded.
Tensor ordered_sum(const std::vector<Tensor>& parts);

/// The same without memory for the sum: part `mine` becomes it. The others are written over.
void sum_in_order(std::vector<Tensor>& parts, std::size_t mine);

/// The first element of part `part` when `count` elements are divided into `parts`, as evenly as possible.
std::int64_t part_start(std::int64_t count, int part, int parts);

}  // namespace stagecoach
