#include "parallel/launch/nccl_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace stagecoach {
namespace {

constexpr const char* kShare = "NCCL refuses two ranks on one GPU; use --transport thread, which shares it";

}  // namespace

void require_nccl(const World& world, const std::optional<LaunchEnvironment>& process, int gpus) {
  if (world.device != DeviceType::cuda) {
    throw UsageError("transport nccl: NCCL sends what is on GPUs; give --device cuda, or another --transport");
  }
  if (world.clock != ClockKind::wall) {
    throw UsageError(
        "transport nccl: --clock virtual is for ranks that share devices; leave it out, or use --transport thread");
  }
  if (!process && world.ranks > gpus) {
    throw UsageError(
        fmt::format("transport nccl: {} ranks, and this machine has {} GPU(s); {}", world.ranks, gpus, kShare));
  }
  if (process && process->size != world.ranks) {
    throw UsageError(fmt::format("{} started {} process(es), the run has {} ranks; start {}, or leave out --ranks",
                                 process->by, process->size, world.ranks, world.ranks));
  }
  // If the launcher makes only one GPU visible to each process, the process uses that one.
  if (process && gpus > 1 && process->local_rank >= gpus) {
    throw UsageError(fmt::format("transport nccl: process {} of this machine (from 0) finds {} GPUs; {}",
                                 process->local_rank, gpus, kShare));
  }
}

void require_gpu_each(const std::vector<std::string>& gpus) {
  for (std::size_t r = 0; r < gpus.size(); ++r) {
    const auto first = static_cast<std::size_t>(std::find(gpus.begin(), gpus.end(), gpus[r]) - gpus.begin());
    if (first < r) {
      throw UsageError(
          fmt::format("transport nccl: ranks {} and {} have the same GPU, {}; {}", first, r, gpus[r], kShare));
    }
  }
}

Device nccl_device(const std::optional<LaunchEnvironment>& process, int rank, int gpus) {
  const int place = process ? process->local_rank : rank;
  return {DeviceType::cuda, gpus == 1 ? 0 : place};
}

}  // namespace stagecoach
