#pragma once
/// @file
/// The transports of ranks that are not threads sharing memory. In a build without one of them, its functions throw
/// UsageError, except for is_built_in and needs_pmix.
///
/// Each run_… runs `body` as this process's rank. If `body` throws, the other ranks are told and this rank's flight
/// record is written. It throws UsageError unless the launcher started `world.ranks` processes. Each
/// broadcast_from_rank_zero replaces `values` with those of rank 0.

#include <functional>

#include "parallel/launch/launch.h"

namespace stagecoach {

/// Processes that communicate by MPI, which cannot be used after `body` has thrown.
namespace mpi {

/// Returns whether processes that srun starts find each other only by PMIx: with Open MPI as Debian builds it. MPICH
/// and its derivatives also use `srun --mpi=pmi2`.
bool needs_pmix();
void run_rank(const World& world, const std::function<void(Rank&)>& body);
void broadcast_from_rank_zero(const World& world, Tensor& values);

}  // namespace mpi

/// Processes on CPUs that communicate by Gloo, which needs no MPI.
namespace gloo_ranks {

bool is_built_in();
void run_rank(const World& world, const std::function<void(Rank&)>& body);
void broadcast_from_rank_zero(const World& world, Tensor& values);

}  // namespace gloo_ranks

/// Ranks that have one GPU each and communicate by NCCL: in a process that a launcher started that process's rank,
/// otherwise all ranks, as threads of this process, which then have nothing to broadcast.
namespace nccl {

bool is_built_in();
/// Throws UsageError before anything starts if there are fewer GPUs than ranks, or if require_nccl throws.
void run_ranks(const World& world, const std::function<void(Rank&)>& body);
void broadcast_from_rank_zero(const World& world, Tensor& values);

}  // namespace nccl
}  // namespace stagecoach
