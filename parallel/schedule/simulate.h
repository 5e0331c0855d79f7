#pragma once
/// @file
/// Simulates when each action of a schedule would run, on ranks and links of given speed: how long the step takes, how
/// long each rank is idle, and how many activations are alive at once.

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// The times of the messages between stages, see Costs.
struct MessageTimes {
  std::vector<double> message;
  std::vector<double> transfer;
};

/// The times, in seconds or any other unit, that each stage takes for a micro-batch, and each message between stages.
struct Costs {
  std::vector<double> forward;
  std::vector<double> backward;
  std::vector<double> backward_input;
  std::vector<double> backward_weight;
  /// The travel time of a message from stage s to s + 1 if they are on different ranks: [stages - 1]. The gradient
  /// takes equally long on its way back. Messages overlap with computation.
  std::vector<double> message;
  /// The part of that time during which the link is busy, so that the next message in the same direction must wait:
  /// [stages - 1], or empty for zeros.
  std::vector<double> transfer = {};
  /// The times of messages in further pipelines, which run the same schedule beside this one over other links. All
  /// meet where they sum gradients, and where they meet in updates.
  std::vector<MessageTimes> other_pipelines = {};
  /// The size of each micro-batch, by its number, relative to the one whose costs these are: so much of `transfer` its
  /// messages take. Empty if all are alike.
  std::vector<double> sizes = {};
  /// The size of the message, which traces show: [stages - 1], or empty if it is not known.
  std::vector<double> bytes = {};
  /// A message of at most so many bytes is sent eagerly: it starts before its receive is posted (see
  /// comm/link_direction.h).
  double eager_bytes = 0;
  /// The time that each rank takes for an update: [ranks], or empty for zeros. If the schedule lists no updates, there
  /// is one at the end of the step.
  std::vector<double> update = {};
  /// The work that a rank does between such an action and its next one, by operation and stage; for an update, by rank.
  std::map<std::pair<Operation, int>, double> after = {};
  /// The time that the replicas of each stage take to sum their gradients, from the moment when the last replica is
  /// ready: [stages], or empty for zeros.
  std::vector<double> average = {};
  /// Where ranks meet in an update (Schedule::rendezvous): [ranks], or empty for zeros. The part of its update that a
  /// rank has done when it meets the others, and the time of the exchanges within that part.
  std::vector<double> norm_work = {};
  std::vector<double> norm_exchange = {};
  /// The time in which they sum the squares of all gradients, from the moment when the last rank is there.
  double norm_sum = 0;

  /// Returns the same costs for every stage; messages take no time.
  static Costs uniform(int stages, double forward, double backward_input, double backward_weight);
  double of(const Action& action, std::size_t rank) const;
  double after_of(const Action& action, std::size_t rank) const;
  double update_of(std::size_t rank) const { return update.empty() ? 0 : update[rank]; }
  double norm_work_of(std::size_t rank) const { return norm_work.empty() ? 0 : norm_work[rank]; }
  double norm_exchange_of(std::size_t rank) const { return norm_exchange.empty() ? 0 : norm_exchange[rank]; }
};

/// Returns the costs of stages that run their forward again before each backward, or before the backward for the input
/// gradient if the backward is split (recomputation, see Stage).
Costs with_recompute(Costs costs);

/// The time of every computation, reduction and update, in the order of its rank: [ranks][all actions except messages].
using ActionSeconds = std::vector<std::vector<double>>;
/// Returns the sum of all of them.
double total_seconds(const ActionSeconds& seconds);
/// Returns how many of `actions` have a time of their own: all but messages.
std::int64_t count_timed(const std::vector<Action>& actions);

struct Simulation {
  double seconds = 0;                 ///< from the first action to the end of the last, of all pipelines
  double idle = 0;                    ///< share of `seconds` in which a rank is idle, the mean over ranks
  double idle_in_span = 0;            ///< the same as a share of the ranks' spans
  std::vector<double> ends;           ///< when each rank ends its last action, reduction or update
  std::vector<double> busy;           ///< seconds of work of each rank
  std::vector<double> span;           ///< seconds from each rank's first computation to its last action
  std::vector<int> peak_activations;  ///< per rank: (stage, micro-batch) pairs between F and the end of B or W
  struct Timed {
    double start;
    double end;
    double arrival = 0;  ///< of a receive's message
  };
  /// The times of each rank's actions, in their order. A receive takes no time; a send takes some if it waits.
  std::vector<std::vector<Timed>> timeline;
};

/// Simulates one step of `schedule`, which must be lowered and legal (see lower, check). Throws Error unless there are
/// costs for every stage. Time in which a rank waits for messages or reductions counts as idle.
///
/// For times that vary, `seconds` holds the time of each single action; then only the times of messages and reductions
/// come from `costs`. Throws Error unless there is exactly one time for each such action. If the schedule lists no
/// updates, one more may follow, that of the update at the end of the step. `before` may hold the rank's work before
/// each of these actions, in place of Costs::after.
Simulation simulate(const Schedule& schedule, const Costs& costs, const ActionSeconds& seconds = {},
                    const ActionSeconds& before = {});

/// The steady state of consecutive steps, in which each rank continues as soon as it can; `seconds` are those of the
/// actions of one step (see simulate).
struct SteadyState {
  double seconds = 0;  ///< per step
  double idle = 0;     ///< the share of them in which a rank is idle, as the mean over ranks
  double fill = 0;     ///< by which the first steps, when the pipeline fills, take longer in all
};
SteadyState simulate_steady_state(const Schedule& schedule, const Costs& costs, const ActionSeconds& seconds = {});

/// Returns what `steps` consecutive steps take in all, and the share in which a rank is idle, with the time of every
/// single action of every step, the update at its end included, and the rank's work before each of them; the last step
/// has micro-batches of `last_sizes` (see Costs::sizes), perhaps fewer than the others. Returns nothing unless
/// `seconds` has exactly these times.
struct ReplayedSteps {
  double seconds = 0;
  double idle = 0;
};
std::optional<ReplayedSteps> replay_steps(const Schedule& schedule, const Costs& costs, const ActionSeconds& seconds,
                                          const ActionSeconds& before, std::int64_t steps,
                                          const std::vector<double>& last_sizes = {});

/// Returns for each rank the largest number of (stage, micro-batch) pairs alive at once. It needs no times, as a rank
/// keeps its order.
std::vector<int> peak_activations(const Schedule& schedule);

/// Returns the same in bytes, where a micro-batch in flight through stage s takes `bytes[s]`, and `deferred[s]` between
/// the two parts of a split backward; if that is empty, the same.
std::vector<double> peak_bytes(const Schedule& schedule, const std::vector<double>& bytes,
                               const std::vector<double>& deferred = {});

}  // namespace stagecoach
