#pragma once
/// @file
/// What a mesh looks like before a run.

#include "chapters/common/settings.h"
#include "datasets/dataset.h"

namespace stagecoach {

/// Prints the groups of ranks in each direction, what each rank holds and exchanges of each layer, and the schedule of
/// a pipeline; with --profile in measured seconds, among them those of all exchanges over --link. With --out, writes
/// the files of explain().
void explain_mesh(const Settings& settings, const Dataset& data);

}  // namespace stagecoach
