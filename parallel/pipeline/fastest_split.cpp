#include "parallel/pipeline/fastest_split.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "parallel/pipeline/rank_balance.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {
namespace {

/// How much slower the slowest stage of a candidate may be than it must be.
constexpr double kStageLimits[] = {1, 1.03, 1.1, 1.25, 1.5, 2, std::numeric_limits<double>::infinity()};
constexpr std::size_t kMaxActions = 10'000'000;  // of all simulated steps

/// A split, and the seconds of its step.
struct Timed {
  double seconds = 0;
  Split split;
  bool operator<(const Timed& other) const { return seconds < other.seconds; }
};

/// Simulates steps, and counts their actions.
class Search {
 public:
  Search(const std::vector<LayerProfile>& layers, const Schedule& schedule, Stage::Recompute recompute)
      : layers_(layers), schedule_(schedule), recompute_(recompute) {
    for (const auto& actions : schedule.ranks) {
      actions_per_step_ += actions.size();
    }
  }

  Timed timed(const Split& split) {
    actions_ += actions_per_step_;
    return {simulate(schedule_, costs_of_stages(layers_, split, recompute_)).seconds, split};
  }

  /// Moves a layer from any stage to any other, with the borders between them, as long as that is faster.
  Timed moved_from(Timed best) {
    constexpr double kRounding = 1e-9;
    for (bool found = true; found;) {
      found = false;
      for (std::size_t from = 0; from < best.split.size(); ++from) {
        for (std::size_t to = 0; to < best.split.size() && actions_ < kMaxActions; ++to) {
          if (from == to || best.split[from] == 1) {
            continue;
          }
          Split split = best.split;
          --split[from];
          ++split[to];
          if (Timed moved = timed(split); moved.seconds < best.seconds * (1 - kRounding)) {
            best = std::move(moved);
            found = true;
          }
        }
      }
    }
    return best;
  }

 private:
  const std::vector<LayerProfile>& layers_;
  const Schedule& schedule_;
  Stage::Recompute recompute_;
  std::size_t actions_per_step_ = 0;
  std::size_t actions_ = 0;
};

}  // namespace

Split fastest_split(const std::vector<LayerProfile>& layers, const Schedule& schedule, Stage::Recompute recompute) {
  const std::vector<double> seconds = seconds_of_layers(layers, recompute);
  const int stages = schedule.stage_count();
  if (has_one_stage_per_rank(schedule)) {
    return split_by_costs(seconds, schedule);
  }
  const Split fastest_stages = split_by_costs(seconds, round_robin_placement(stages, stages));
  Search search(layers, schedule, recompute);
  std::vector<Timed> starts{search.timed(split_by_layers(static_cast<int>(layers.size()), stages))};
  for (const double limit : kStageLimits) {
    starts.push_back(search.timed(balance_ranks(seconds, schedule, fastest_stages, limit)));
  }
  std::stable_sort(starts.begin(), starts.end());  // so that the limit cuts off the least promising
  for (Timed& start : starts) {
    start = search.moved_from(std::move(start));
  }
  return std::min_element(starts.begin(), starts.end())->split;
}

}  // namespace stagecoach
