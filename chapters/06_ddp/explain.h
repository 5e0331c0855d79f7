#pragma once
/// @file
/// What a step should take, before it was tried.

#include "chapters/06_ddp/topology.h"

namespace stagecoach {

/// Prints what each rank does, a timeline of each mode with its reductions on a track of their own, what reductions
/// cost as a ring, as a tree and rank by rank, and the best bucket size. In units, or with --profile with the times
/// that the model takes here. With --out also writes schedule.csv, prediction.json and timelines.svg.
void explain_modes(const Settings& settings, const Topology& topology, const Dataset& data);

}  // namespace stagecoach
