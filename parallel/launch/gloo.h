#pragma once
/// @file
/// Ranks that are processes on CPUs and communicate by Gloo, which needs no MPI. In a build without Gloo every function
/// but the first throws UsageError.

#include <functional>

#include "parallel/launch/launch.h"

namespace stagecoach::gloo_ranks {

bool is_built_in();

/// Runs `body` as this process's rank. If `body` throws, the other ranks are told and this rank's flight record is
/// written. Throws UsageError unless a launcher started `world.ranks` processes, on CPUs.
void run_rank(const World& world, const std::function<void(Rank&)>& body);

/// Replaces `values` with those of rank 0.
void broadcast_from_rank_zero(const World& world, Tensor& values);

}  // namespace stagecoach::gloo_ranks
