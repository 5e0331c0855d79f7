#pragma once
/// @file
/// What a world must be for NCCL, and which GPU each of its ranks takes. Nothing here needs a GPU.

#include <optional>
#include <string>
#include <vector>

#include "parallel/launch/launch.h"
#include "parallel/launch/launch_environment.h"

namespace stagecoach {

/// Throws UsageError unless the ranks of `world` can communicate by NCCL on a machine with `gpus` GPUs. `process` is
/// what a launcher says, or nothing for ranks that are threads.
void require_nccl(const World& world, const std::optional<LaunchEnvironment>& process, int gpus);

/// Throws UsageError, with the ranks, when two of `gpus` (one per rank) have the same name.
void require_gpu_each(const std::vector<std::string>& gpus);

/// The GPU of rank `rank`, for a world that require_nccl accepts.
Device nccl_device(const std::optional<LaunchEnvironment>& process, int rank, int gpus);

}  // namespace stagecoach
