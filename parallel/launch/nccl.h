#pragma once
/// @file
/// Ranks that have one GPU each and communicate by NCCL: threads of this process, or processes that a launcher started.
/// In a build without NCCL every function but the first throws UsageError.

#include <functional>

#include "parallel/launch/launch.h"

namespace stagecoach::nccl {

bool is_built_in();

/// Runs `body` as all ranks, each a thread; or, in a process that a launcher started, as the one that it is. If it
/// throws, the others are told, and the rank's flight record is left. Throws UsageError before anything starts when
/// there are fewer GPUs than ranks, and for all else that require_nccl refuses.
void run_ranks(const World& world, const std::function<void(Rank&)>& body);

/// Makes `values` those of rank 0 where ranks are processes.
void broadcast_from_rank_zero(const World& world, Tensor& values);

}  // namespace stagecoach::nccl
