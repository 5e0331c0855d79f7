#include "parallel/schedule/simulate.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "core/error.h"
#include "parallel/schedule/walk.h"

namespace stagecoach {
namespace {

/// When the output of each stage, and the gradient of its input, are where they are needed: one number a stage and
/// micro-batch.
class Times {
 public:
  Times(int stages, int microbatches)
      : microbatches_(static_cast<std::size_t>(microbatches)),
        times_(static_cast<std::size_t>(stages) * microbatches_) {}
  double& at(int stage, int microbatch) {
    return times_[static_cast<std::size_t>(stage) * microbatches_ + static_cast<std::size_t>(microbatch)];
  }

 private:
  std::size_t microbatches_;
  std::vector<double> times_;
};

class RankTimes {
 public:
  RankTimes(const Schedule& schedule, const Costs& costs, const ActionSeconds& seconds)
      : schedule_(schedule),
        costs_(costs),
        seconds_(seconds),
        next_(seconds.size()),
        outputs_(schedule.stages, schedule.microbatches),
        gradients_(schedule.stages, schedule.microbatches),
        whole_(schedule.stages, schedule.batch > 0 ? schedule.microbatches : 0),
        free_(schedule.ranks.size(), 0),
        links_(schedule.ranks.size()) {}

  /// Runs `action` on `rank` as soon as both are ready.
  Simulation::Timed run(int rank, const Action& action) {
    double& free = free_[static_cast<std::size_t>(rank)];
    const double start = std::max(free, ready(action));
    const bool is_update = action.operation == Operation::update;
    const double end = start + (is_update ? averaging(action.stage) : 0) + work(static_cast<std::size_t>(rank), action);
    free = end;
    if (action.operation == Operation::forward) {
      outputs_.at(action.stage, action.microbatch) = arrival(action, action.stage + 1, end);
    } else if (action.operation == Operation::backward || action.operation == Operation::backward_input) {
      gradients_.at(action.stage, action.microbatch) = arrival(action, action.stage - 1, end);
    }
    if (action.operation == Operation::backward || action.operation == Operation::backward_weight) {
      note_weight_gradient(action.stage, action.microbatch, end);
    }
    return {start, end};
  }
  /// Ends a step; gives the time at which `rank` is free.
  double update(std::size_t rank) {
    const bool is_listed = schedule_.batch > 0 || !seconds_.empty();
    return free_[rank] += is_listed ? 0 : costs_.update_of(rank);
  }

 private:
  /// What the next action of `rank`, which is `action`, takes.
  double work(std::size_t rank, const Action& action) {
    if (!seconds_.empty()) {
      return seconds_[rank][next_[rank]++];
    }
    return costs_.of(action, rank);
  }
  double averaging(int stage) const {
    return schedule_.replicas_of(stage) > 1 && !costs_.average.empty() ? costs_.average[static_cast<std::size_t>(stage)]
                                                                       : 0;
  }
  /// When stage `to` has what `action` has made by the time `end`.
  double arrival(const Action& action, int to, double end) {
    if (to < 0 || to == schedule_.stages) {
      return end;
    }
    const int from_rank = schedule_.rank_of(action.stage, action.microbatch);
    const int to_rank = schedule_.rank_of(to, action.microbatch);
    if (from_rank == to_rank) {
      return end;
    }
    const auto border = static_cast<std::size_t>(std::min(action.stage, to));
    double& link = links_[static_cast<std::size_t>(from_rank)][to_rank];
    const double start = std::max(end, link);
    link = start + (costs_.transfer.empty() ? 0 : costs_.transfer[border]);
    return start + costs_.message[border];
  }
  /// When what `action` needs from another stage has arrived.
  double ready(const Action& action) {
    const auto [operation, stage, microbatch] = action;
    if (operation == Operation::forward && stage > 0) {
      return outputs_.at(stage - 1, microbatch);
    }
    const bool goes_back = operation == Operation::backward || operation == Operation::backward_input;
    if (goes_back && stage + 1 < schedule_.stages) {
      return gradients_.at(stage + 1, microbatch);
    }
    return operation == Operation::update ? whole_.at(stage, microbatch) : 0;
  }
  void note_weight_gradient(int stage, int microbatch, double end) {
    if (schedule_.batch > 0) {
      double& whole = whole_.at(stage, microbatch / schedule_.unit(stage));
      whole = std::max(whole, end);
    }
  }

  const Schedule& schedule_;
  const Costs& costs_;
  const ActionSeconds& seconds_;   // or empty
  std::vector<std::size_t> next_;  // of those, on each rank
  Times outputs_;
  Times gradients_;  // of the stages' inputs
  Times whole_;      // and when the last replica has a gradient for each update
  std::vector<double> free_;
  std::vector<std::map<int, double>> links_;  // of each rank to others: when the last message is through
};

}  // namespace

Costs Costs::uniform(int stages, double forward, double backward_input, double backward_weight) {
  const auto all = [stages](double cost) { return std::vector<double>(static_cast<std::size_t>(stages), cost); };
  return {.forward = all(forward),
          .backward = all(backward_input + backward_weight),
          .backward_input = all(backward_input),
          .backward_weight = all(backward_weight),
          .message = std::vector<double>(static_cast<std::size_t>(std::max(stages - 1, 0)), 0)};
}

double Costs::of(const Action& action, std::size_t rank) const {
  const auto stage = static_cast<std::size_t>(action.stage);
  switch (action.operation) {
    case Operation::forward:
      return forward[stage];
    case Operation::backward:
      return backward[stage];
    case Operation::backward_input:
      return backward_input[stage];
    case Operation::backward_weight:
      return backward_weight[stage];
    case Operation::update:
      return update_of(rank);
  }
  fail("costs: unknown operation");
}

namespace {

void require_costs(const Schedule& schedule, const Costs& costs) {
  const auto stages = static_cast<std::size_t>(schedule.stages);
  STAGECOACH_CHECK(costs.forward.size() == stages && costs.backward.size() == stages &&
                       costs.backward_input.size() == stages && costs.backward_weight.size() == stages &&
                       costs.message.size() + 1 == stages &&
                       (costs.transfer.empty() || costs.transfer.size() + 1 == stages) &&
                       (costs.update.empty() || costs.update.size() == schedule.ranks.size()) &&
                       (costs.average.empty() || costs.average.size() == stages),
                   "simulate: costs of {} stages for a schedule of {}", costs.forward.size(), stages);
}

/// Runs one step; calls `see(rank, times)` for each action.
template <class See>
void run_step(const Schedule& schedule, RankTimes& clock, const See& see) {
  Walk walk(schedule);
  walk.run([&](int rank, const Action& action) { see(static_cast<std::size_t>(rank), clock.run(rank, action)); });
  for (int r = 0; r < schedule.rank_count(); ++r) {
    STAGECOACH_CHECK(walk.is_done(r), "simulate: the schedule is not legal; check() says why");
  }
}

/// Seconds of work on `rank` in a step.
double busy_seconds(const Schedule& schedule, const Costs& costs, std::size_t rank, const ActionSeconds& seconds = {}) {
  if (!seconds.empty()) {
    return std::accumulate(seconds[rank].begin(), seconds[rank].end(), 0.0);
  }
  double busy = schedule.batch > 0 ? 0 : costs.update_of(rank);
  for (const Action& action : schedule.ranks[rank]) {
    busy += costs.of(action, rank);
  }
  return busy;
}

}  // namespace

Simulation simulate(const Schedule& schedule, const Costs& costs, const ActionSeconds& seconds) {
  require_costs(schedule, costs);
  for (std::size_t r = 0; r < schedule.ranks.size() && !seconds.empty(); ++r) {
    STAGECOACH_CHECK(seconds.size() == schedule.ranks.size() && seconds[r].size() == schedule.ranks[r].size(),
                     "simulate: the seconds of {} ranks do not fit the actions of {}", seconds.size(),
                     schedule.ranks.size());
  }
  Simulation result;
  result.peak_activations = peak_activations(schedule);
  result.timeline.resize(schedule.ranks.size());
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    result.timeline[r].reserve(schedule.ranks[r].size());
  }
  RankTimes clock(schedule, costs, seconds);
  run_step(schedule, clock,
           [&](std::size_t rank, const Simulation::Timed& times) { result.timeline[rank].push_back(times); });

  double spans = 0;
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    const double end = clock.update(r);
    result.busy.push_back(busy_seconds(schedule, costs, r, seconds));
    result.seconds = std::max(result.seconds, end);
    spans += result.timeline[r].empty() ? 0 : end - result.timeline[r].front().start;
  }
  const double whole = result.seconds * static_cast<double>(schedule.ranks.size());
  const double busy = std::accumulate(result.busy.begin(), result.busy.end(), 0.0);
  result.idle = whole > 0 ? 1 - busy / whole : 0;
  result.idle_in_span = spans > 0 ? 1 - busy / spans : 0;
  return result;
}

SteadyState simulate_steady_state(const Schedule& schedule, const Costs& costs) {
  require_costs(schedule, costs);
  const ActionSeconds means_only;
  RankTimes clock(schedule, costs, means_only);
  constexpr int kSteps = 4;  // the first ones begin with all ranks free at once
  double ends[kSteps] = {};
  double busy = 0;
  for (double& end : ends) {
    run_step(schedule, clock, [](std::size_t, const Simulation::Timed&) {});
    for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
      end = std::max(end, clock.update(r));
    }
  }
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    busy += busy_seconds(schedule, costs, r);
  }
  const double seconds = ends[kSteps - 1] - ends[kSteps - 2];
  const double whole = seconds * static_cast<double>(schedule.ranks.size());
  return {seconds, whole > 0 ? 1 - busy / whole : 0};
}

std::vector<int> peak_activations(const Schedule& schedule) {
  const auto peaks = peak_bytes(schedule, std::vector<double>(static_cast<std::size_t>(schedule.stages), 1));
  return {peaks.begin(), peaks.end()};
}

std::vector<double> peak_bytes(const Schedule& schedule, const std::vector<double>& bytes) {
  std::vector<double> peaks;
  // A backward in one piece frees what it used; in two pieces the second does.
  for (const auto& actions : schedule.ranks) {
    double alive = 0;
    double peak = 0;
    for (const auto& [operation, stage, microbatch] : actions) {
      const double size = bytes[static_cast<std::size_t>(stage)];
      alive += operation == Operation::forward ? size : 0;
      peak = std::max(peak, alive);
      alive -= operation == Operation::backward || operation == Operation::backward_weight ? size : 0;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace stagecoach
