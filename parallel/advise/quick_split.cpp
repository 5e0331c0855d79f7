#include "parallel/advise/quick_split.h"

#include <algorithm>
#include <numeric>

namespace stagecoach {
namespace {

/// What is compared of two splits: the time, then how unequal the stages are, which lets a search pass plateaus.
struct SplitTime {
  double seconds = 0;
  double squares = 0;
  bool is_below(const SplitTime& other) const {
    constexpr double kRounding = 1 - 1e-9;
    return seconds < other.seconds * kRounding ||
           (seconds * kRounding < other.seconds && squares < other.squares * kRounding);
  }
};

class SplitTimes {
 public:
  SplitTimes(const std::vector<double>& costs, const Placement& placement, int microbatches)
      : placement_(placement), microbatches_(microbatches), before_(costs.size() + 1) {
    std::partial_sum(costs.begin(), costs.end(), before_.begin() + 1);
    ranks_ = *std::max_element(placement.stage_to_rank.begin(), placement.stage_to_rank.end()) + 1;
    loads_.resize(static_cast<std::size_t>(ranks_));
  }

  SplitTime of(const Split& split) {
    std::fill(loads_.begin(), loads_.end(), 0);
    double slowest_stage = 0;
    double squares = 0;
    std::size_t layer = 0;
    for (std::size_t s = 0; s < split.size(); ++s) {
      const std::size_t end = layer + static_cast<std::size_t>(split[s]);
      const double stage = before_[end] - before_[layer];
      loads_[static_cast<std::size_t>(placement_.stage_to_rank[s])] += stage;
      slowest_stage = std::max(slowest_stage, stage);
      squares += stage * stage;
      layer = end;
    }
    const double slowest_rank = *std::max_element(loads_.begin(), loads_.end());
    for (const double load : loads_) {
      squares += load * load;
    }
    return {microbatches_ * slowest_rank + (ranks_ - 1) * slowest_stage, squares};
  }

 private:
  const Placement& placement_;
  int microbatches_;
  int ranks_ = 0;
  std::vector<double> before_;  // prefix sums of the costs
  std::vector<double> loads_;   // of the ranks
};

}  // namespace

Split quick_split(const std::vector<double>& costs, const Placement& placement, int microbatches) {
  if (has_one_stage_per_rank(placement)) {
    return split_by_costs(costs, placement);
  }
  Split best = split_by_layers(static_cast<int>(costs.size()), placement.stage_count());
  SplitTimes times(costs, placement, microbatches);
  SplitTime time = times.of(best);
  for (bool found = true; found;) {
    found = false;
    for (std::size_t from = 0; from < best.size(); ++from) {
      for (std::size_t to = 0; to < best.size() && best[from] > 1; ++to) {
        --best[from];
        ++best[to];
        if (const SplitTime moved = times.of(best); moved.is_below(time)) {
          time = moved;
          found = true;
        } else {
          ++best[from];
          --best[to];
        }
      }
    }
  }
  return best;
}

}  // namespace stagecoach
