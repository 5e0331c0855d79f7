#include "parallel/schedule/placement.h"

#include <cstddef>

namespace stagecoach {

int Placement::stage_of(int rank) const {
  for (int stage = 0; stage < stage_count(); ++stage) {
    if (holds(rank, stage)) {
      return stage;
    }
  }
  return -1;
}

Placement dealt_in_turn(int stages, int ranks) {
  Placement placement{std::vector<int>(static_cast<std::size_t>(stages))};
  for (int s = 0; s < stages; ++s) {
    placement.holder[static_cast<std::size_t>(s)] = s % ranks;
  }
  return placement;
}

Placement side_by_side(const std::vector<int>& replicas) {
  Placement placement{{}, replicas};
  int first = 0;
  for (const int count : replicas) {
    placement.holder.push_back(first);
    first += count;
  }
  return placement;
}

}  // namespace stagecoach
