#include "parallel/pipeline/fastest_split.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "parallel/pipeline/rank_balance.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {
namespace {

/// How much slower the slowest stage of a candidate may be than it must be.
constexpr double kStageLimits[] = {1, 1.03, 1.1, 1.25, 1.5, 2, std::numeric_limits<double>::infinity()};
constexpr std::size_t kMaxActions = 10'000'000;  // of all simulated steps

}  // namespace

TimedSplit faster_by_moves(TimedSplit best, const std::function<double(const Split&)>& seconds_of, std::size_t& tries) {
  constexpr double kRounding = 1e-9;
  for (bool found = true; found;) {
    found = false;
    for (std::size_t from = 0; from < best.split.size(); ++from) {
      for (std::size_t to = 0; to < best.split.size() && tries > 0; ++to) {
        if (from == to || best.split[from] == 1) {
          continue;
        }
        Split split = best.split;
        --split[from];
        ++split[to];
        --tries;
        if (const double seconds = seconds_of(split); seconds < best.seconds * (1 - kRounding)) {
          best = {seconds, std::move(split)};
          found = true;
        }
      }
    }
  }
  return best;
}

Split fastest_split(const std::vector<LayerProfile>& layers, const Schedule& schedule, Stage::Recompute recompute) {
  const std::vector<double> seconds = seconds_of_layers(layers, recompute);
  const int stages = schedule.stage_count();
  if (has_one_stage_per_rank(schedule)) {
    return split_by_costs(seconds, schedule);
  }
  const auto seconds_of = [&](const Split& split) {
    return simulate(schedule, costs_of_stages(layers, split, recompute)).seconds;
  };
  std::vector<TimedSplit> starts;
  const auto add = [&](Split split) { starts.push_back({seconds_of(split), std::move(split)}); };
  add(split_by_layers(static_cast<int>(layers.size()), stages));
  const Split fastest_stages = split_by_costs(seconds, round_robin_placement(stages, stages));
  for (const double limit : kStageLimits) {
    add(balance_ranks(seconds, schedule, fastest_stages, limit));
  }
  const auto is_faster = [](const TimedSplit& a, const TimedSplit& b) { return a.seconds < b.seconds; };
  std::stable_sort(starts.begin(), starts.end(), is_faster);  // so that the limit cuts off the least promising
  const std::size_t actions = schedule.action_count();
  const std::size_t steps = (kMaxActions + actions - 1) / actions;
  std::size_t tries = steps - std::min(steps, starts.size());
  for (TimedSplit& start : starts) {
    start = faster_by_moves(std::move(start), seconds_of, tries);
  }
  return std::min_element(starts.begin(), starts.end(), is_faster)->split;
}

}  // namespace stagecoach
