#pragma once
/// @file
/// When each action of a schedule would run, on ranks and links of given speed: the step's length, who is idle for how
/// long, and how many activations are alive at once.

#include <vector>

#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// Seconds (or any unit) that each stage takes for a micro-batch, and each message between stages.
struct Costs {
  std::vector<double> forward;
  std::vector<double> backward;
  std::vector<double> backward_input;
  std::vector<double> backward_weight;
  /// How long a message from stage s to s + 1 travels, when another rank holds it: [stages - 1]. The gradient takes as
  /// long on its way back. Messages travel beside the computation.
  std::vector<double> message;
  /// For how much of that time the link is taken, so that the next message the same way must wait: [stages - 1], or
  /// empty for nothing.
  std::vector<double> transfer = {};
  /// Whether the message is sent eagerly, so that it starts before its receive is posted (see comm/link_direction.h):
  /// [stages - 1], or empty if no message is.
  std::vector<bool> is_short = {};
  /// What each rank does in an update: [ranks], or empty for nothing. Where the schedule lists none it comes at the end
  /// of the step.
  std::vector<double> update = {};
  /// How long the replicas of each stage take to sum their gradients, from the moment when the last has come: [stages],
  /// or empty for nothing.
  std::vector<double> average = {};

  /// The same for every stage; without messages.
  static Costs uniform(int stages, double forward, double backward_input, double backward_weight);
  double of(const Action& action, std::size_t rank) const;
  double update_of(std::size_t rank) const { return update.empty() ? 0 : update[rank]; }
};

/// What each single computation, reduction and update takes, in the order of its rank: [ranks][all but messages].
using ActionSeconds = std::vector<std::vector<double>>;

struct Simulation {
  double seconds = 0;                 ///< from the first action to the end of the last
  double idle = 0;                    ///< share of `seconds` in which a rank does nothing, the mean over ranks
  double idle_in_span = 0;            ///< the same per rank, within its own first and last action
  std::vector<double> busy;           ///< seconds of work of each rank
  std::vector<double> span;           ///< seconds from each rank's first computation to its last action
  std::vector<int> peak_activations;  ///< of each rank: (stage, micro-batch) pairs between F and the end of B or W
  struct Timed {
    double start;
    double end;
  };
  /// Of each rank's actions, in their order. A receive takes no time; a send takes some where it waits.
  std::vector<std::vector<Timed>> timeline;
  /// Of each rank's receives, in their order: when the message has arrived.
  std::vector<std::vector<double>> arrivals;
};

/// `schedule` must be lowered and legal (see lower, check). Throws Error unless there are costs for every stage. What a
/// rank waits for messages and reductions counts as idle.
///
/// Where times vary, `seconds` are those of each of these actions; then of `costs` only what messages and
/// reductions take counts. Throws Error unless there are as many as those.
Simulation simulate(const Schedule& schedule, const Costs& costs, const ActionSeconds& seconds = {});

/// Steps that follow each other, where each rank goes on as soon as it can: seconds from one to the next, and the share
/// of them in which a rank does nothing, the mean over ranks.
struct SteadyState {
  double seconds = 0;
  double idle = 0;
};
SteadyState simulate_steady_state(const Schedule& schedule, const Costs& costs);

/// The most (stage, micro-batch) pairs that are alive at once on each rank. Needs no times: a rank keeps its order.
std::vector<int> peak_activations(const Schedule& schedule);

/// The same as memory: the most bytes that are alive at once on each rank, when a micro-batch in flight through stage s
/// takes `bytes[s]`.
std::vector<double> peak_bytes(const Schedule& schedule, const std::vector<double>& bytes);

}  // namespace stagecoach
