#pragma once
/// @file
/// Sums whose bytes do not depend on who makes them: floating-point addition is not associative, so ranks add up in one
/// order.

#include <optional>
#include <vector>

#include "core/tensor.h"

namespace stagecoach {

/// The sum of `parts` [n, …], one a rank, on one device, in the order of the ranks. Those of float16 are added as
/// float32, so that only the sum is rounded. `scratch` is 0 or 1 if that part's memory may be written over: the sum of
/// two does not depend on their order, so either may take it. Otherwise the sum gets memory of its own.
Tensor ordered_sum(const std::vector<Tensor>& parts, std::optional<std::size_t> scratch = {});

/// The first element of part `part` when `count` elements are dealt to `parts`, as evenly as can be.
std::int64_t part_start(std::int64_t count, int part, int parts);

}  // namespace stagecoach
