#pragma once
/// @file
/// Sums whose bytes are the same on every rank: floating-point addition is not associative, so all ranks add in one
/// order.

#include <cstddef>
#include <vector>

#include "core/tensor.h"

namespace stagecoach {

/// Returns the sum of `parts` [n, …], one per rank, all on one device, added in rank order. float16 parts are added as
/// float32, so that only the sum is rounded.
Tensor ordered_sum(const std::vector<Tensor>& parts);

/// Computes the same sum in place: part `mine` becomes the sum. The parts before it may be overwritten.
void sum_in_order(std::vector<Tensor>& parts, std::size_t mine);

/// Returns the first element of part `part` when `count` elements are divided into `parts` parts as evenly as possible.
std::int64_t part_start(std::int64_t count, int part, int parts);

}  // namespace stagecoach
