#pragma once
/// @file
/// Ranks that have one GPU each and communicate by NCCL: threads of this process, or processes that a launcher started.
/// In a build without NCCL every function but the first throws UsageError.

#include <functional>

#include "parallel/launch/launch.h"

namespace stagecoach::nccl {

bool is_built_in();

/// Runs `body` once per rank, each on its own thread; in a process that a launcher started, only as that process's
/// rank. If `body` throws, the other ranks are told and the rank's flight record is written. Throws UsageError before
/// anything starts if there are fewer GPUs than ranks, or if require_nccl throws.
void run_ranks(const World& world, const std::function<void(Rank&)>& body);

/// If ranks are processes, replaces `values` with those of rank 0.
void broadcast_from_rank_zero(const World& world, Tensor& values);

}  // namespace stagecoach::nccl
