#include "parallel/schedule/simulate.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "parallel/schedule/dependency_replay.h"
#include "parallel/schedule/grid.h"
#include "parallel/schedule/lower.h"

namespace stagecoach {
namespace {

/// The messages of a step. A message starts as soon as it is sent, its receive is posted and the link is free; a link
/// carries the messages of one direction one after the other. A short message does not wait for the receive.
class Messages {
 public:
  Messages(const Schedule& schedule, const Costs& costs)
      : schedule_(schedule), costs_(costs), sizes_(costs.sizes), messages_(schedule) {}

  /// Sets the sizes of the micro-batches that follow.
  void set_sizes(const std::vector<double>& sizes) { sizes_ = sizes; }

  void send(const Action& send, double now) { match(receive_of(send), now, true); }
  void post(const Action& receive, double now) { match(receive, now, false); }
  /// Returns when the message arrives. Its send and its receive must both have been given.
  double arrival(const Action& receive) const { return messages_.at(receive).time; }

 private:
  struct Message {
    double time = 0;  // of its first end; then of its arrival
    bool half = false;
  };
  struct Link {
    double free = 0;
    double free_for_short = 0;  // short messages fit between the packets of a long one
  };

  void match(const Action& receive, double now, bool is_sent) {
    Message& message = messages_.at(receive);
    message.time = message.half ? transfer(receive, is_sent ? now : message.time, is_sent ? message.time : now) : now;
    message.half = !message.half;
  }
  double transfer(const Action& receive, double sent, double posted) {
    const Action send = send_of(receive);
    const auto border = static_cast<std::size_t>(std::min(send.stage, receive.stage));
    Link& link = links_[{schedule_.rank_of(send), schedule_.rank_of(receive)}];
    const double size = sizes_.empty() ? 1 : sizes_[static_cast<std::size_t>(receive.microbatch)];
    const bool is_short = !costs_.bytes.empty() && costs_.bytes[border] * size <= costs_.eager_bytes;
    double& free = is_short ? link.free_for_short : link.free;
    const double start = std::max(is_short ? sent : std::max(sent, posted), free);
    const double whole = costs_.transfer.empty() ? 0 : costs_.transfer[border];
    const double own = whole * size;
    free = start + own;
    return std::max(start + (costs_.message[border] - whole) + own, posted);
  }

  const Schedule& schedule_;
  const Costs& costs_;
  std::vector<double> sizes_;  // see Costs::sizes
  MessageGrid<Message> messages_;
  std::map<std::pair<int, int>, Link> links_;  // from one rank to another
};

class RankTimes {
 public:
  RankTimes(const Schedule& schedule, const Costs& costs, const ActionSeconds& seconds)
      : schedule_(schedule),
        costs_(costs),
        seconds_(seconds),
        next_(seconds.size()),
        outputs_(schedule.stage_count(), schedule.microbatches),
        gradients_(schedule.stage_count(), schedule.microbatches),
        whole_(schedule.stage_count(), schedule.batch > 0 ? schedule.microbatches : 0),
        messages_(schedule, costs),
        free_(schedule.ranks.size(), 0),
        after_(schedule.ranks.size(), 0),
        reduced_(schedule.ranks.size(), 0) {}

  /// Lets the first step begin with the work that other steps do after the update of the one before.
  void begin_as_after_update() {
    for (std::size_t r = 0; r < after_.size(); ++r) {
      after_[r] = costs_.after_of({Operation::update, 0, 0}, r);
    }
  }

  /// Runs `action` on `rank` as soon as the rank is free and the input of the action is ready.
  Simulation::Timed run(int rank, const Action& action) {
    double& free = free_[static_cast<std::size_t>(rank)];
    double start = free;
    if (is_send(action.operation)) {
      messages_.send(action, free);
      free = schedule_.sends_wait ? std::max(free, messages_.arrival(receive_of(action))) : free;
    } else if (is_receive(action.operation)) {
      messages_.post(action, free);
    } else if (action.operation == Operation::reduce_grad) {
      return reduce(static_cast<std::size_t>(rank), action);
    } else if (action.operation == Operation::update) {
      start = update_start(static_cast<std::size_t>(rank));
      update(static_cast<std::size_t>(rank), action);
    } else {
      double& after = after_[static_cast<std::size_t>(rank)];
      start = std::max(free + after, ready(action));
      free = start + work(static_cast<std::size_t>(rank), action);
      after = costs_.after_of(action, static_cast<std::size_t>(rank));
      note_results(action, free);
    }
    return {start, free};
  }
  double arrival(const Action& receive) const { return messages_.arrival(receive); }
  void set_sizes(const std::vector<double>& sizes) { messages_.set_sizes(sizes); }
  /// Returns the work that `rank` has left after its last action so far.
  double after_last(std::size_t rank) const { return after_[rank]; }
  /// Ends a step; returns the times at which the ranks are free.
  const std::vector<double>& end_step() {
    if (schedule_.batch == 0) {  // otherwise updates are listed
      norms_ = 0;
      for (std::size_t rank = 0; rank < free_.size(); ++rank) {
        update(rank, {Operation::update, 0, 0});
      }
    }
    return free_;
  }

 private:
  /// Returns when `rank` begins an update that comes next: before one at the end of a step it waits for its reductions.
  double update_start(std::size_t rank) const { return std::max(free_[rank] + after_[rank], reduced_[rank]); }

  void update(std::size_t rank, const Action& action) {
    const double seconds = work(rank, action);
    if (schedule_.updates_meet) {
      free_[rank] = norm_known(action.microbatch) + seconds - costs_.norm_work_of(rank);
    } else {
      free_[rank] = update_start(rank) + seconds;
    }
    after_[rank] = costs_.after_of(action, rank);
  }

  /// Returns when all ranks know the norm of update `number`. When the first of them asks, all have reached the update.
  double norm_known(int number) {
    if (number == norms_) {
      norm_known_ = 0;
      for (std::size_t rank = 0; rank < free_.size(); ++rank) {
        const double there = update_start(rank) + costs_.norm_work_of(rank) + costs_.norm_exchange_of(rank);
        norm_known_ = std::max(norm_known_, there + costs_.norm_sum);
      }
      ++norms_;
    }
    return norm_known_;
  }

  /// Returns the time of the next action of `rank`, which is `action`.
  double work(std::size_t rank, const Action& action) {
    if (seconds_.empty()) {
      return costs_.of(action, rank);
    }
    const std::size_t next = next_[rank]++;
    return next < seconds_[rank].size() ? seconds_[rank][next] : 0;  // without a time of the update
  }
  /// Before an update that is listed, the rank waits for its replicas. At the end of a step, the reductions of its
  /// stages overlap with its other work and run one after the other.
  Simulation::Timed reduce(std::size_t rank, const Action& action) {
    const double own_work = work(rank, action);
    const double seconds =
        own_work + (costs_.average.empty() ? 0 : costs_.average[static_cast<std::size_t>(action.stage)]);
    const bool waits = schedule_.batch > 0;
    double& end = waits ? free_[rank] : reduced_[rank];
    const double start = std::max(free_[rank] + after_[rank], waits ? whole_.at(action.stage, action.microbatch) : end);
    end = start + seconds;
    after_[rank] = waits ? 0 : after_[rank];
    return {start, end};
  }
  /// Returns when the tensor that `action` needs from another stage is ready.
  double ready(const Action& action) {
    const auto [operation, stage, microbatch] = action;
    if (const auto receive = receive_before(schedule_, action)) {
      return messages_.arrival(*receive);
    }
    if (operation == Operation::forward && stage > 0) {
      return outputs_.at(stage - 1, microbatch);
    }
    if (gives_input_gradient(operation) && stage + 1 < schedule_.stage_count()) {
      return gradients_.at(stage + 1, microbatch);
    }
    return 0;
  }
  void note_results(const Action& action, double end) {
    const auto [operation, stage, microbatch] = action;
    if (operation == Operation::forward) {
      outputs_.at(stage, microbatch) = end;
    } else if (gives_input_gradient(operation)) {
      gradients_.at(stage, microbatch) = end;
    }
    if (gives_weight_gradient(operation) && schedule_.batch > 0) {
      double& whole = whole_.at(stage, microbatch / schedule_.microbatches_per_update(stage));
      whole = std::max(whole, end);
    }
  }

  const Schedule& schedule_;
  const Costs& costs_;
  const ActionSeconds& seconds_;   // may be empty
  std::vector<std::size_t> next_;  // per rank: the next index in `seconds_`
  Grid<double> outputs_;
  Grid<double> gradients_;  // when the gradients of the stages' inputs are ready
  Grid<double> whole_;      // when the last replica has its gradients, per update
  Messages messages_;
  std::vector<double> free_;
  std::vector<double> after_;    // the rank's work before its next action
  std::vector<double> reduced_;  // when the reductions of each rank end
  int norms_ = 0;                // that are known
  double norm_known_ = 0;        // since when the last one is
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
void run_step(const Schedule& schedule, RankTimes& clock, const See& see) {
  DependencyReplay replay(schedule);
  replay.run([&](int rank, const Action& action) { see(static_cast<std::size_t>(rank), clock.run(rank, action)); });
  for (int r = 0; r < schedule.rank_count(); ++r) {
    STAGECOACH_CHECK(replay.is_done(r), "simulate: expected a legal schedule; call check() to find its problems");
  }
}

/// Returns the seconds of work on `rank` in a step, or in as many as `seconds` has the times of.
double busy_seconds(const Schedule& schedule, const Costs& costs, std::size_t rank, const ActionSeconds& seconds = {},
                    std::int64_t steps = 1) {
  const auto work_of = [&](const Action& action) {
    return (seconds.empty() ? costs.of(action, rank) : 0) + costs.after_of(action, rank);
  };
  double busy = schedule.batch > 0 ? 0 : work_of({Operation::update, 0, 0});
  for (const Action& action : schedule.ranks[rank]) {
    busy += work_of(action);
  }
  busy *= static_cast<double>(steps);
  return seconds.empty() ? busy : std::accumulate(seconds[rank].begin(), seconds[rank].end(), busy);
}

std::int64_t count_timed(const std::vector<Action>& actions) {
  return std::count_if(actions.begin(), actions.end(),
                       [](const Action& action) { return !is_message(action.operation); });
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

double latest(const std::vector<double>& times) { return *std::max_element(times.begin(), times.end()); }

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

Simulation simulate(const Schedule& schedule, const Costs& costs, const ActionSeconds& seconds) {
  require_costs(schedule, costs);
  require_seconds(schedule, seconds);
  Simulation result;
  result.peak_activations = peak_activations(schedule);
  result.timeline.resize(schedule.ranks.size());
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    result.timeline[r].reserve(schedule.ranks[r].size());
  }
  RankTimes clock(schedule, costs, seconds);
  run_step(schedule, clock,
           [&](std::size_t rank, const Simulation::Timed& times) { result.timeline[rank].push_back(times); });

  for_each_action(schedule, [&](std::size_t rank, std::size_t action_index, const Action& action) {
    if (is_receive(action.operation)) {
      result.timeline[rank][action_index].arrival = clock.arrival(action);
    }
  });
  double spans = 0;
  result.ends = clock.end_step();
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    const double end = result.ends[r];
    result.busy.push_back(busy_seconds(schedule, costs, r, seconds) - clock.after_last(r));  // that is in the next step
    result.seconds = std::max(result.seconds, end);
    result.span.push_back(end - first_start(schedule.ranks[r], result.timeline[r]).value_or(end));
    spans += result.span.back();
  }
  const double whole = result.seconds * static_cast<double>(schedule.ranks.size());
  const double busy = std::accumulate(result.busy.begin(), result.busy.end(), 0.0);
  result.idle = whole > 0 ? std::max(1 - busy / whole, 0.0) : 0;
  result.idle_in_span = spans > 0 ? std::max(1 - busy / spans, 0.0) : 0;
  return result;
}

SteadyState simulate_steady_state(const Schedule& schedule, const Costs& costs) {
  require_costs(schedule, costs);
  const ActionSeconds means_only;
  RankTimes clock(schedule, costs, means_only);
  constexpr int kSteps = 4;  // in the first ones the pipeline is not yet in its steady state
  double ends[kSteps] = {};
  double busy = 0;
  for (double& end : ends) {
    run_step(schedule, clock, [](std::size_t, const Simulation::Timed&) {});
    end = latest(clock.end_step());
  }
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    busy += busy_seconds(schedule, costs, r);
  }
  const double seconds = ends[kSteps - 1] - ends[kSteps - 2];
  const double whole = seconds * static_cast<double>(schedule.ranks.size());
  return {seconds, whole > 0 ? std::max(1 - busy / whole, 0.0) : 0, ends[kSteps - 1] - kSteps * seconds};
}

std::optional<ReplayedSteps> replay_steps(const Schedule& schedule, const Costs& costs, const ActionSeconds& seconds,
                                          std::int64_t steps, const std::vector<double>& last_sizes) {
  require_costs(schedule, costs);
  RankTimes clock(schedule, costs, seconds);
  clock.begin_as_after_update();
  double busy = 0;
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    if (static_cast<std::int64_t>(seconds[r].size()) != steps * (count_timed(schedule.ranks[r]) + 1)) {
      return std::nullopt;
    }
    busy += busy_seconds(schedule, costs, r, seconds, steps);
  }
  ReplayedSteps replay;
  for (std::int64_t step = 0; step < steps; ++step) {
    if (step + 1 == steps && !last_sizes.empty()) {
      clock.set_sizes(last_sizes);
    }
    run_step(schedule, clock, [](std::size_t, const Simulation::Timed&) {});
    replay.seconds = latest(clock.end_step());
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
