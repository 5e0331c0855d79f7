#pragma once
/// @file
/// Measures how long a rank's actions take. From these measurements `simulate` calculates how long the training should
/// have taken.

#include <cstddef>
#include <vector>

#include "core/trace.h"
#include "parallel/comm/activity.h"
#include "parallel/comm/communicator.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

/// The log of one rank. Times are measured on the rank's clock and exclude waits for other ranks, with one exception:
/// on a virtual clock, the time counts for which a collective within a forward or backward waits for the last of its
/// ranks to begin. Ranks that compute one layer together take as long as the slowest of them between any two exchanges.
/// (The first exchange also waits for a rank that began the action later. Collectives of a CommThread have a clock of
/// their own, and do not count.)
class ActionLog {
 public:
  /// Makes the log for a pipeline of `stages` stages over the ranks of `comm`.
  ActionLog(Communicator& comm, int stages);

  /// Times an action, or the update at the end of a step, until the end of the scope. Errors and the trace name it.
  class Scope;
  /// Returns whether such a scope is open.
  bool is_timing() const { return is_timing_; }

  /// Returns the seconds of each computation, reduction and update of each rank, in that rank's order: [ranks][all
  /// actions except messages]. All ranks call it together and get the same result.
  ActionSeconds seconds() const { return of_all_ranks(seconds_); }
  /// Returns the seconds of work before each of them, since the one before or since the log was cleared.
  ActionSeconds before() const { return of_all_ranks(before_); }
  /// Returns whether this is the first of the ranks.
  bool is_of_first_rank() const { return comm_.rank() == 0; }
  /// Clears the log.
  void clear();
  /// Returns the mean costs, in seconds, of each stage's computations and of each rank's updates, with the work of an
  /// update before the ranks meet. What did not happen costs nothing, and messages take no time. All ranks call it
  /// together and get the same result.
  Costs mean_costs() const;

 private:
  struct Sum {
    double total = 0;
    double count = 0;
    void add(double amount, double counts = 1) { total += amount, count += counts; }
  };
  ActionSeconds of_all_ranks(const std::vector<double>& mine) const;
  std::size_t slot_of(const Action& action) const;
  std::size_t slot_of_update() const {
    return static_cast<std::size_t>(stages_) * 4 + static_cast<std::size_t>(comm_.rank());
  }
  /// Returns the time by the rank's clock, excluding waits.
  double worked() const { return comm_.clock().now() - comm_.clock().waited(); }

  Communicator& comm_;
  int stages_;
  bool is_timing_ = false;
  std::vector<double> seconds_;  // of all computations, reductions and updates
  std::vector<double> before_;   // of the work before each of them
  std::vector<Sum> sums_;        // each stage's four operations; each rank's updates
  std::vector<double> after_;    // the work between these and the rank's next action
  double norm_work_ = 0;         // of this rank's updates, before the ranks meet for the norm of all gradients
  std::size_t last_ = 0;         // the index of the last action among those
  double ended_ = 0;             // when it ended
};

class ActionLog::Scope {
 public:
  Scope(ActionLog& log, const Action& action);
  /// Times the update at the end of a step.
  explicit Scope(ActionLog& log) : Scope(log, {Operation::update, Activity::kNone, 0}) {}
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  /// Returns the time by the rank's clock, excluding waits, or all waits but those for stragglers.
  double worked() const;

  ActionLog& log_;
  Activity activity_;
  Span span_;
  std::size_t slot_;
  double counts_;  // 0 for a reduction, whose own work counts as part of the update that follows
  bool counts_stragglers_;
  bool is_update_;
  double began_;
};

}  // namespace stagecoach
