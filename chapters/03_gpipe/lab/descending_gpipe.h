#pragma once
/// @file
/// Lab 3, first part: a schedule as a generator.

#include <vector>

#include "parallel/schedule/schedule.h"

namespace stagecoach::lab {

/// Returns one step of GPipe in the order of the paper's figure 2c, for any map from stages to ranks.
///
/// - Each rank first runs all its forwards: stage by stage, the lowest number first, and for each stage the
/// micro-batches
///   from 0 to the last.
/// - Then it runs its backwards in exactly the reverse order: the last forward comes back first.
///
/// @param stage_to_rank  the rank of each stage, from stage 0: {0, 1, 2} places three stages on three ranks, {0, 1, 0,
/// 1}
///                       four stages on two, and {0, 1, 1, 0} too. There are as many ranks as the largest number says,
///                       and each holds a stage.
/// @param microbatches   at least 1.
/// The result lists computations only (Operation::forward and Operation::backward), no messages and no updates.
Schedule descending_gpipe(const std::vector<int>& stage_to_rank, int microbatches);

}  // namespace stagecoach::lab
