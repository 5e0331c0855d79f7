#pragma once
/// @file
/// Splits layers into stages for one of the thousands of candidates of a search: in microseconds, where fastest_split()
/// may take a second.

#include <vector>

#include "parallel/pipeline/split.h"
#include "parallel/schedule/placement.h"

namespace stagecoach {

/// Returns a split with a small m R + (p - 1) S, where R is the largest sum of the `costs` of a rank's stages, S that
/// of a stage, m the micro-batches and p the ranks: R sets the pace, and S the time in which the pipeline fills and
/// drains. Where every rank has one stage, it is split_by_costs(). Otherwise single layers move from one stage to
/// another, from equal stages on, as long as that makes it smaller. Equal arguments give equal splits. Throws
/// UsageError for more stages than layers.
Split quick_split(const std::vector<double>& costs, const Placement& placement, int microbatches);

}  // namespace stagecoach
