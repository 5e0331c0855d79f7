#include "parallel/schedule/rank_actions.h"

#include "core/base/throw_if.h"

namespace stagecoach {

Schedule empty_schedule(const Placement& placement, int ranks, int microbatches) {
  throw_if<UsageError>(ranks < 1 || microbatches < 1 || placement.stage_count() < ranks,
                       "expected at least 1 rank, 1 micro-batch and as many stages as ranks, got {}, {} and {}", ranks,
                       microbatches, placement.stage_count());
  Schedule schedule{placement, microbatches, std::vector<std::vector<Action>>(static_cast<std::size_t>(ranks))};
  const auto passes =
      static_cast<std::size_t>(microbatches) * static_cast<std::size_t>(ceil_div(schedule.stage_count(), ranks));
  for (auto& actions : schedule.ranks) {
    actions.reserve(3 * passes);
  }
  return schedule;
}

Schedule empty_schedule(int ranks, int microbatches, int chunks) {
  throw_if<UsageError>(ranks < 1 || microbatches < 1 || chunks < 1,
                       "expected at least 1 rank, 1 micro-batch and 1 chunk, got {}, {} and {}", ranks, microbatches,
                       chunks);
  return empty_schedule(round_robin_placement(ranks * chunks, ranks), ranks, microbatches);
}

}  // namespace stagecoach
