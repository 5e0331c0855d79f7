#pragma once
/// @file
/// What NCCL requires of a world, and which GPU each rank uses. Nothing here needs a GPU.

#include <optional>
#include <string>
#include <vector>

#include "parallel/launch/launch.h"
#include "parallel/launch/launch_environment.h"

namespace stagecoach {

/// Throws UsageError unless the ranks of `world` can communicate by NCCL on a machine with `gpus` GPUs. `process` is
/// the launch environment, or nullopt for ranks that are threads.
void require_nccl(const World& world, const std::optional<LaunchEnvironment>& process, int gpus);

/// Throws UsageError, naming the ranks, if two of `gpus` (one name per rank) are equal.
void require_gpu_each(const std::vector<std::string>& gpus);

/// Returns the GPU of rank `rank`, for a world that require_nccl accepts.
Device nccl_device(const std::optional<LaunchEnvironment>& process, int rank, int gpus);

}  // namespace stagecoach
