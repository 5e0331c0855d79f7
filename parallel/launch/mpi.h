#pragma once
/// @file
/// Ranks that are processes and communicate by MPI. In a build without MPI every function except needs_pmix throws
/// UsageError.

#include <functional>

#include "parallel/launch/launch.h"

namespace stagecoach::mpi {

/// Returns whether processes that srun starts find each other only by PMIx: with Open MPI as Debian builds it. MPICH
/// and its derivatives also use `srun --mpi=pmi2`.
bool needs_pmix();

/// Runs `body` as this process's rank. If `body` throws, the other ranks are told and this rank's flight record is
/// written; MPI cannot be used after that. Throws UsageError unless the launcher started `world.ranks` processes.
void run_rank(const World& world, const std::function<void(Rank&)>& body);

/// Replaces `values` with those of rank 0.
void broadcast_from_rank_zero(const World& world, Tensor& values);

}  // namespace stagecoach::mpi
