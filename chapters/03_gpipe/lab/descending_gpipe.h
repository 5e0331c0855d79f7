#pragma once
/// @file
/// Lab 3, first part: a schedule as a generator.

#include <vector>

#include "parallel/schedule/schedule.h"

namespace stagecoach::lab {

/// Returns one step of GPipe in the order of the paper's figure 2c (chapter 3, "The program", says how it differs from
/// the chapter's), for any map from stages to ranks.
///
/// - Each rank first runs all its forwards: stage by stage, the lowest number first, and for each stage the
///   micro-batches from 0 to the last.
/// - Then it runs its backwards in exactly the reverse order: the last forward comes back first.
///
/// With stages on ranks {0, 1} and 2 micro-batches, rank 0 runs 0F0, 0F1, 0B1, 0B0.
///
/// @param stage_to_rank  the rank of each stage, from stage 0: {0, 1, 2} places three stages on three ranks;
///                       {0, 1, 0, 1} and {0, 1, 1, 0} place four on two. The number of ranks is the largest number
///                       plus one, and each rank holds a stage.
/// @param microbatches   at least 1.
/// The result lists computations only (Operation::forward and Operation::backward), no messages and no updates.
Schedule descending_gpipe(const std::vector<int>& stage_to_rank, int microbatches);

}  // namespace stagecoach::lab
