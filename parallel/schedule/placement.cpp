#include "parallel/schedule/placement.h"

#include <cstddef>

namespace stagecoach {

std::vector<int> Placement::stages_of(int rank) const {
  std::vector<int> stages;
  for (int stage = 0; stage < stage_count(); ++stage) {
    if (holds(rank, stage)) {
      stages.push_back(stage);
    }
  }
  return stages;
}

int Placement::stage_of(int rank) const {
  const std::vector<int> stages = stages_of(rank);
  return stages.empty() ? -1 : stages.front();
}

Placement round_robin_placement(int stages, int ranks) {
  Placement placement{std::vector<int>(static_cast<std::size_t>(stages))};
  for (int s = 0; s < stages; ++s) {
    placement.stage_to_rank[static_cast<std::size_t>(s)] = s % ranks;
  }
  return placement;
}

Placement contiguous_placement(const std::vector<int>& replicas) {
  Placement placement{{}, replicas};
  int first = 0;
  for (const int count : replicas) {
    placement.stage_to_rank.push_back(first);
    first += count;
  }
  return placement;
}

Placement v_placement(int ranks) {
  Placement placement;
  for (int rank = 0; rank < ranks; ++rank) {
    placement.stage_to_rank.push_back(rank);
  }
  for (int rank = ranks - 1; rank >= 0; --rank) {
    placement.stage_to_rank.push_back(rank);
  }
  return placement;
}

}  // namespace stagecoach
