#include "parallel/launch/nccl_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/phrases.h"
#include "core/base/throw_if.h"

namespace stagecoach {
namespace {

constexpr const char* kSharingAdvice =
    "NCCL does not allow two ranks on one GPU; use transport `thread`, in which ranks share GPUs";

}  // namespace

void require_nccl(const World& world, const std::optional<LaunchEnvironment>& process, int gpus) {
  throw_if<UsageError>(
      world.device != DeviceType::cuda,
      "transport nccl: NCCL sends tensors between GPUs only; use device `cuda`, or another `transport`");
  throw_if<UsageError>(
      world.clock != ClockKind::wall,
      "transport nccl: a clock that computes time is for ranks that share devices; use clock `wall`, or "
      "transport `thread`");
  throw_if<UsageError>(!process && world.ranks > gpus,
                       "transport nccl: the run has {} ranks, but this machine has {}; {}", world.ranks,
                       counted(gpus, "GPU"), kSharingAdvice);
  if (process && process->size != world.ranks) {
    throw UsageError(
        fmt::format("the number of processes is wrong: {} started {}, the run has {} ranks; start {}, or "
                    "leave out `ranks`",
                    process->by, counted(process->size, "process"), world.ranks, world.ranks));
  }
  // If the launcher makes only one GPU visible to each process, the process uses that one.
  if (process && gpus > 1 && process->local_rank >= gpus) {
    throw UsageError(fmt::format("transport nccl: process {} on this machine (counted from 0) sees only {} GPUs; {}",
                                 process->local_rank, gpus, kSharingAdvice));
  }
}

void require_gpu_each(const std::vector<std::string>& gpus) {
  for (std::size_t r = 0; r < gpus.size(); ++r) {
    const auto first = static_cast<std::size_t>(std::find(gpus.begin(), gpus.end(), gpus[r]) - gpus.begin());
    throw_if<UsageError>(first < r, "transport nccl: ranks {} and {} use the same GPU, {}; {}", first, r, gpus[r],
                         kSharingAdvice);
  }
}

Device nccl_device(const std::optional<LaunchEnvironment>& process, int rank, int gpus) {
  const int local_rank = process ? process->local_rank : rank;
  return {DeviceType::cuda, gpus == 1 ? 0 : local_rank};
}

}  // namespace stagecoach
