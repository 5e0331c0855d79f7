#include "parallel/schedule/simulate.h"

#include <algorithm>

#include "core/error.h"
#include "parallel/schedule/walk.h"

namespace stagecoach {
namespace {

/// When the output of each stage, and the gradient of its input, are there: one number a stage and micro-batch.
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

class Clock {
 public:
  Clock(const Schedule& schedule, const Costs& costs)
      : schedule_(schedule),
        costs_(costs),
        outputs_(schedule.stages, schedule.microbatches),
        gradients_(schedule.stages, schedule.microbatches),
        free_(schedule.ranks.size(), 0) {}

  /// Runs `action` on `rank` as soon as both are ready.
  Simulation::Timed run(int rank, const Action& action) {
    double& free = free_[static_cast<std::size_t>(rank)];
    const double start = std::max(free, ready(action));
    const double end = start + costs_.of(action);
    free = end;
    if (action.operation == Operation::forward) {
      outputs_.at(action.stage, action.microbatch) = end;
    } else if (action.operation != Operation::backward_weight) {
      gradients_.at(action.stage, action.microbatch) = end;
    }
    return {start, end};
  }

 private:
  double travel(int from, int to) const {
    const auto holder = [&](int stage) { return schedule_.holder[static_cast<std::size_t>(stage)]; };
    return holder(from) == holder(to) ? 0 : costs_.message[static_cast<std::size_t>(std::min(from, to))];
  }
  /// When what `action` needs from another stage has arrived.
  double ready(const Action& action) {
    const auto [operation, stage, microbatch] = action;
    if (operation == Operation::forward && stage > 0) {
      return outputs_.at(stage - 1, microbatch) + travel(stage - 1, stage);
    }
    const bool goes_back = operation == Operation::backward || operation == Operation::backward_input;
    if (goes_back && stage + 1 < schedule_.stages) {
      return gradients_.at(stage + 1, microbatch) + travel(stage + 1, stage);
    }
    return 0;
  }

  const Schedule& schedule_;
  const Costs& costs_;
  Times outputs_;
  Times gradients_;
  std::vector<double> free_;
};

}  // namespace

Costs Costs::uniform(int stages, double forward, double backward_input, double backward_weight) {
  const auto all = [stages](double cost) { return std::vector<double>(static_cast<std::size_t>(stages), cost); };
  Costs costs{all(forward), all(backward_input + backward_weight), all(backward_input), all(backward_weight), all(0)};
  costs.message.resize(static_cast<std::size_t>(std::max(stages - 1, 0)));
  return costs;
}

double Costs::of(const Action& action) const {
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
  }
  fail("costs: unknown operation");
}

Simulation simulate(const Schedule& schedule, const Costs& costs) {
  const auto stages = static_cast<std::size_t>(schedule.stages);
  STAGECOACH_CHECK(costs.forward.size() == stages && costs.backward.size() == stages &&
                       costs.backward_input.size() == stages && costs.backward_weight.size() == stages &&
                       costs.message.size() + 1 == stages,
                   "simulate: costs of {} stages for a schedule of {}", costs.forward.size(), stages);
  Simulation result;
  result.peak_activations = peak_activations(schedule);
  result.timeline.resize(schedule.ranks.size());
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    result.timeline[r].reserve(schedule.ranks[r].size());
  }
  Clock clock(schedule, costs);
  Walk walk(schedule);
  walk.run([&](int rank, const Action& action) {
    result.timeline[static_cast<std::size_t>(rank)].push_back(clock.run(rank, action));
  });

  double busy = 0;
  double spans = 0;
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    STAGECOACH_CHECK(walk.is_done(static_cast<int>(r)), "simulate: the schedule is not legal; check() says why");
    for (const Action& action : schedule.ranks[r]) {
      busy += costs.of(action);
    }
    if (!result.timeline[r].empty()) {
      result.seconds = std::max(result.seconds, result.timeline[r].back().end);
      spans += result.timeline[r].back().end - result.timeline[r].front().start;
    }
  }
  const double whole = result.seconds * static_cast<double>(schedule.ranks.size());
  result.idle = whole > 0 ? 1 - busy / whole : 0;
  result.idle_in_span = spans > 0 ? 1 - busy / spans : 0;
  return result;
}

std::vector<int> peak_activations(const Schedule& schedule) {
  std::vector<int> peaks;
  // A backward in one piece frees what it used; in two pieces the second does.
  for (const auto& actions : schedule.ranks) {
    int alive = 0;
    int peak = 0;
    for (const Action& action : actions) {
      alive += action.operation == Operation::forward ? 1 : 0;
      peak = std::max(peak, alive);
      alive -= action.operation == Operation::backward || action.operation == Operation::backward_weight ? 1 : 0;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace stagecoach
