#pragma once
/// @file
/// Splits layers into stages where a rank holds several of them: what counts is the sum of its stages.

#include <limits>
#include <vector>

#include "parallel/pipeline/split.h"
#include "parallel/schedule/placement.h"

namespace stagecoach {

/// Returns a split whose slowest rank, the largest sum of a rank's stages, is the fastest. Among those with an equally
/// fast slowest rank (up to rounding), the slowest stage is the fastest; then the stages are as equal as possible; then
/// the early stages are the longest. Equal arguments give equal splits.
/// - `costs` has one cost of at least 0 per layer. No stage of `placement` has replicas.
/// - No stage is slower than `limit` times the slowest stage of `start`, a split into as many stages.
///
/// Branch and bound looks through all splits, with at most two million steps (some 10 ms). If it ends within them, the
/// split is the best. So it does for 28 layers in 16 stages on 8 ranks, but not always for 30 layers in 16 stages on 4
/// ranks, nor for 50 layers in 16 stages on 8. Then the split is the best that was found, or `start`. The limit counts
/// steps, not time, so that every machine finds the same split.
Split balance_ranks(const std::vector<double>& costs, const Placement& placement, const Split& start,
                    double limit = std::numeric_limits<double>::infinity());

}  // namespace stagecoach
