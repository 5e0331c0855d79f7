#include "parallel/schedule/simulate.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "parallel/schedule/dependency_replay.h"
#include "parallel/schedule/rank_times.h"

namespace stagecoach {

Costs Costs::uniform(int stages, double forward, double backward_input, double backward_weight) {
  const auto all = [stages](double cost) { return std::vector<double>(static_cast<std::size_t>(stages), cost); };
  return {.forward = all(forward),
          .backward = all(backward_input + backward_weight),
          .backward_input = all(backward_input),
          .backward_weight = all(backward_weight),
          .message = std::vector<double>(static_cast<std::size_t>(std::max(stages - 1, 0)), 0)};
}

Costs with_recompute(Costs costs) {
  for (std::size_t stage = 0; stage < costs.forward.size(); ++stage) {
    costs.backward[stage] += costs.forward[stage];
    costs.backward_input[stage] += costs.forward[stage];
  }
  return costs;
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
    default:
      return 0;  // a message occupies a link, not the rank
  }
}

double Costs::after_of(const Action& action, std::size_t rank) const {
  const auto found =
      after.find({action.operation, action.operation == Operation::update ? static_cast<int>(rank) : action.stage});
  return found == after.end() ? 0 : found->second;
}

namespace {

void require_costs(const Schedule& schedule, const Costs& costs) {
  const auto stages = static_cast<std::size_t>(schedule.stage_count());
  STAGECOACH_CHECK(costs.forward.size() == stages && costs.backward.size() == stages &&
                       costs.backward_input.size() == stages && costs.backward_weight.size() == stages &&
                       costs.message.size() + 1 == stages &&
                       (costs.transfer.empty() || costs.transfer.size() + 1 == stages) &&
                       std::all_of(costs.other_pipelines.begin(), costs.other_pipelines.end(),
                                   [&](const MessageTimes& each) {
                                     return each.message.size() == costs.message.size() &&
                                            each.transfer.size() == costs.transfer.size();
                                   }) &&
                       (costs.sizes.empty() || std::ssize(costs.sizes) >= schedule.microbatches) &&
                       (costs.bytes.empty() || costs.bytes.size() + 1 == stages) &&
                       (costs.update.empty() || costs.update.size() == schedule.ranks.size()) &&
                       (costs.average.empty() || costs.average.size() == stages) &&
                       (costs.norm_work.empty() || costs.norm_work.size() == schedule.ranks.size()) &&
                       (costs.norm_exchange.empty() || costs.norm_exchange.size() == schedule.ranks.size()),
                   "simulate: expected the costs of {1} stages, got {0}", costs.forward.size(), stages);
}

/// Runs one step; calls `see(rank, times)` for each action.
template <class See>
void run_step(const Schedule& schedule, PipelineTimes& clock, const See& see) {
  DependencyReplay replay(schedule);
  replay.run([&](int rank, const Action& action) { see(static_cast<std::size_t>(rank), clock.run(rank, action)); });
  for (int r = 0; r < schedule.rank_count(); ++r) {
    STAGECOACH_CHECK(replay.is_done(r), "simulate: expected a legal schedule; call check() to find its problems");
  }
}

/// Returns the seconds of work on `rank` after its actions in a step.
double seconds_after(const Schedule& schedule, const Costs& costs, std::size_t rank) {
  double after = schedule.batch > 0 ? 0 : costs.after_of({Operation::update, 0, 0}, rank);
  for (const Action& action : schedule.ranks[rank]) {
    after += costs.after_of(action, rank);
  }
  return after;
}

/// Returns the seconds of work on `rank` in a step; `seconds` has those of its actions, and `before` those between
/// them, unless they are empty.
double busy_seconds(const Schedule& schedule, const Costs& costs, std::size_t rank, const ActionSeconds& seconds,
                    const ActionSeconds& before = {}) {
  if (!before.empty()) {
    return std::accumulate(seconds[rank].begin(), seconds[rank].end(),
                           std::accumulate(before[rank].begin(), before[rank].end(), 0.0));
  }
  if (!seconds.empty()) {
    return std::accumulate(seconds[rank].begin(), seconds[rank].end(), seconds_after(schedule, costs, rank));
  }
  const auto work_of = [&](const Action& action) { return costs.of(action, rank) + costs.after_of(action, rank); };
  double busy = schedule.batch > 0 ? 0 : work_of({Operation::update, 0, 0});
  for (const Action& action : schedule.ranks[rank]) {
    busy += work_of(action);
  }
  return busy;
}

void require_seconds(const Schedule& schedule, const ActionSeconds& seconds) {
  for (std::size_t r = 0; r < schedule.ranks.size() && !seconds.empty(); ++r) {
    const std::int64_t listed = count_timed(schedule.ranks[r]);
    const std::int64_t at_the_end = schedule.batch > 0 ? 0 : 1;
    STAGECOACH_CHECK(seconds.size() == schedule.ranks.size() &&
                         (std::ssize(seconds[r]) == listed || std::ssize(seconds[r]) == listed + at_the_end),
                     "simulate: expected one time per action of {1} ranks, got the times of {0}", seconds.size(),
                     schedule.ranks.size());
  }
}

/// Returns when a rank begins to work; nothing if it never does.
std::optional<double> first_start(const std::vector<Action>& actions, const std::vector<Simulation::Timed>& times) {
  const auto first = std::find_if(actions.begin(), actions.end(),
                                  [](const Action& action) { return !is_communication(action.operation); });
  if (first == actions.end()) {
    return std::nullopt;
  }
  return times[static_cast<std::size_t>(first - actions.begin())].start;
}

}  // namespace

double total_seconds(const ActionSeconds& seconds) {
  double total = 0;
  for (const std::vector<double>& rank : seconds) {
    total = std::accumulate(rank.begin(), rank.end(), total);
  }
  return total;
}

std::int64_t count_timed(const std::vector<Action>& actions) {
  return std::count_if(actions.begin(), actions.end(),
                       [](const Action& action) { return !is_message(action.operation); });
}

Simulation simulate(const Schedule& schedule, const Costs& costs, const ActionSeconds& seconds,
                    const ActionSeconds& before) {
  require_costs(schedule, costs);
  require_seconds(schedule, seconds);
  Simulation result;
  result.peak_activations = peak_activations(schedule);
  result.timeline.resize(schedule.ranks.size());
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    result.timeline[r].reserve(schedule.ranks[r].size());
  }
  PipelineTimes clock(schedule, costs, seconds, before);
  run_step(schedule, clock,
           [&](std::size_t rank, const Simulation::Timed& times) { result.timeline[rank].push_back(times); });

  for_each_action(schedule, [&](std::size_t rank, std::size_t action_index, const Action& action) {
    if (is_receive(action.operation)) {
      result.timeline[rank][action_index].arrival = clock.first().arrival(action);
    }
  });
  double spans = 0;
  result.seconds = clock.end_step();
  result.ends = clock.first().free();
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    const double end = result.ends[r];
    const double after = before.empty() ? clock.first().after_last(r) : 0;  // that is in the next step
    result.busy.push_back(busy_seconds(schedule, costs, r, seconds, before) - after);
    result.span.push_back(end - first_start(schedule.ranks[r], result.timeline[r]).value_or(end));
    spans += result.span.back();
  }
  const double whole = result.seconds * static_cast<double>(schedule.ranks.size());
  const double busy = std::accumulate(result.busy.begin(), result.busy.end(), 0.0);
  result.idle = whole > 0 ? std::max(1 - busy / whole, 0.0) : 0;
  result.idle_in_span = spans > 0 ? std::max(1 - busy / spans, 0.0) : 0;
  return result;
}

SteadyState simulate_steady_state(const Schedule& schedule, const Costs& costs, const ActionSeconds& seconds_of_step) {
  require_costs(schedule, costs);
  require_seconds(schedule, seconds_of_step);
  const ActionSeconds before;
  PipelineTimes clock(schedule, costs, seconds_of_step, before);
  clock.begin_as_after_update();
  constexpr int kSteps = 4;  // in the first ones the pipeline is not yet in its steady state
  double ends[kSteps] = {};
  double busy = 0;
  for (double& end : ends) {
    run_step(schedule, clock, [](std::size_t, const Simulation::Timed&) {});
    end = clock.end_step();
    clock.repeat();
  }
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    busy += busy_seconds(schedule, costs, r, seconds_of_step);
  }
  const double seconds = ends[kSteps - 1] - ends[kSteps - 2];
  const double whole = seconds * static_cast<double>(schedule.ranks.size());
  return {seconds, whole > 0 ? std::max(1 - busy / whole, 0.0) : 0, ends[kSteps - 1] - kSteps * seconds};
}

std::optional<ReplayedSteps> replay_steps(const Schedule& schedule, const Costs& costs, const ActionSeconds& seconds,
                                          const ActionSeconds& before, std::int64_t steps,
                                          const std::vector<double>& last_sizes) {
  require_costs(schedule, costs);
  const Schedule last =
      last_sizes.empty() ? schedule : with_fewer_microbatches(schedule, static_cast<int>(last_sizes.size()));
  PipelineTimes clock(schedule, costs, seconds, before);
  double busy = 0;
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    const std::int64_t timed = (steps - 1) * count_timed(schedule.ranks[r]) + count_timed(last.ranks[r]);
    if (std::ssize(seconds[r]) != timed + steps || before[r].size() != seconds[r].size()) {  // each step has an update
      return std::nullopt;
    }
    busy += busy_seconds(schedule, costs, r, seconds, before);
  }
  ReplayedSteps replay;
  for (std::int64_t step = 0; step < steps; ++step) {
    const bool is_last = step + 1 == steps;
    if (is_last && !last_sizes.empty()) {
      clock.set_sizes(last_sizes);
    }
    run_step(is_last ? last : schedule, clock, [](std::size_t, const Simulation::Timed&) {});
    replay.seconds = clock.end_step();
  }
  const double whole = replay.seconds * static_cast<double>(schedule.ranks.size());
  replay.idle = whole > 0 ? std::max(1 - busy / whole, 0.0) : 0;
  return replay;
}

std::vector<int> peak_activations(const Schedule& schedule) {
  const auto peaks = peak_bytes(schedule, std::vector<double>(static_cast<std::size_t>(schedule.stage_count()), 1));
  return {peaks.begin(), peaks.end()};
}

std::vector<double> peak_bytes(const Schedule& schedule, const std::vector<double>& bytes,
                               const std::vector<double>& deferred) {
  std::vector<double> peaks;
  for (const auto& actions : schedule.ranks) {
    double alive = 0;
    double peak = 0;
    for (const auto& [operation, stage, microbatch] : actions) {
      const double whole = bytes[static_cast<std::size_t>(stage)];
      const double rest = deferred.empty() ? whole : deferred[static_cast<std::size_t>(stage)];
      switch (operation) {
        case Operation::forward:
          alive += whole;
          break;
        case Operation::backward:
          alive -= whole;
          break;
        case Operation::backward_input:
          alive += rest - whole;
          break;
        case Operation::backward_weight:
          alive -= rest;
          break;
        default:
          break;
      }
      peak = std::max(peak, alive);
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace stagecoach
