#pragma once
/// @file
/// Lab 5, part 1: interleaved 1F1B for any number of micro-batches.

#include "parallel/schedule/schedule.h"

namespace stagecoach::lab {

/// Returns the interleaved 1F1B schedule of one step on `ranks` ranks with `chunks` >= 2 stages each: chunk c of rank r
/// is stage c * ranks + r. `microbatches` is any number from 1 on.
///
/// The chapter's program takes one group size for the whole step and refuses micro-batches that do not fit. This one
/// chooses the groups itself: as many as have at least `ranks` micro-batches each, and their sizes differ by one at
/// most, in whatever order. With fewer micro-batches than ranks, there is one group of all of them. Each stage runs its
/// forwards and its backwards from micro-batch 0 on.
///
/// Rank r of p holds at most 2 (p - r - 1) + (v - 1) g + 1 activations, with v chunks and g micro-batches in the
/// largest group, wherever that comes. A shorter warm-up than the chapter's is allowed if the step is no longer.
Schedule interleaved(int ranks, int microbatches, int chunks);

}  // namespace stagecoach::lab
