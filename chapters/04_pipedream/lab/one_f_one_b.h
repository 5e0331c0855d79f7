#pragma once
/// @file
/// Lab 4, part 1: 1F1B on ranks of unequal memory.

#include <vector>

#include "parallel/schedule/schedule.h"

namespace stagecoach::lab {

/// Returns the 1F1B schedule of one step: p = limits.size() ranks, rank r holds stage r, and `microbatches` is any
/// number from 1 on. Rank r has memory for the activations of limits[r] >= 1 micro-batches, so at no time may more than
/// limits[r] of them be between their forward and their backward on that rank.
///
/// Every rank runs warm-up forwards, then one forward and one backward in turn, then the remaining backwards, each kind
/// from micro-batch 0 on. Where the limits are large it is the schedule of the chapter. Where they are small it
/// keeps to them, without a deadlock, and the step takes no longer than the limits make necessary.
Schedule one_f_one_b(int microbatches, const std::vector<int>& limits);

}  // namespace stagecoach::lab
