#pragma once
/// @file
/// Ranks that are processes and communicate by MPI. In a build without MPI every function throws UsageError.

#include <functional>

#include "parallel/launch/launch.h"

namespace stagecoach::mpi {

/// Runs `body` as the rank that this process is. If it throws, the others are told, and this rank's flight record is
/// left; MPI cannot be used any more then. Throws UsageError unless the launcher started `world.ranks` processes.
void run_rank(const World& world, const std::function<void(Rank&)>& body);

/// Makes `values` those of rank 0.
void broadcast_from_rank_zero(const World& world, Tensor& values);

}  // namespace stagecoach::mpi
