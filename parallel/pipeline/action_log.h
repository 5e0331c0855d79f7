#pragma once
/// @file
/// How long a rank's actions took, and how large its messages were. What is measured in a training goes into
/// `simulate`, which then says how long the training should have taken.

#include <cstddef>
#include <vector>

#include "core/trace.h"
#include "parallel/comm/activity.h"
#include "parallel/comm/communicator.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

/// One rank's. Times are those of its clock, without the waits for other ranks.
class ActionLog {
 public:
  /// For a pipeline of `stages` stages over the ranks of `comm`.
  ActionLog(Communicator& comm, int stages);

  /// The rank works on an action, or at the end of a step on its update, until the end of the scope. Errors and the
  /// trace name it.
  class Scope;
  /// The rank sends `bytes`, a micro-batch's activations, from stage `stage` to the next.
  void note_message(int stage, std::size_t bytes);

  /// Seconds of each computation, reduction and update of each rank, in its order: [ranks][all but messages]. All ranks
  /// call it together and get the same.
  ActionSeconds seconds() const;
  /// Forgets what was noted.
  void clear();
  /// The mean costs, in seconds, of each stage's actions and messages and of each rank's updates. All ranks call it
  /// together and get the same. What did not happen costs nothing.
  Costs mean_costs() const;

 private:
  struct Sum {
    double total = 0;
    double count = 0;
    void add(double amount, double counts = 1) { total += amount, count += counts; }
  };
  /// Time since it was made, without waits.
  class Stopwatch {
   public:
    explicit Stopwatch(Clock& clock) : clock_(clock), began_(clock.now()), waited_(clock.waited()) {}
    double seconds() const { return clock_.now() - began_ - (clock_.waited() - waited_); }

   private:
    Clock& clock_;
    double began_;
    double waited_;
  };
  std::size_t slot_of(const Action& action) const;
  void add(Sum& sum, double seconds, double counts) {
    sum.add(seconds, counts);
    seconds_.push_back(seconds);
  }

  Communicator& comm_;
  int stages_;
  std::vector<double> seconds_;  // of all computations, reductions and updates
  std::vector<Sum> sums_;        // each stage's four operations; each stage's messages, in bytes; each rank's updates
};

class ActionLog::Scope {
 public:
  Scope(ActionLog& log, const Action& action);
  /// Of the update at the end of a step.
  explicit Scope(ActionLog& log) : Scope(log, {Operation::update, Activity::kNone, 0}) {}
  ~Scope() { log_.add(sum_, stopwatch_.seconds(), counts_); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  ActionLog& log_;
  Activity activity_;
  Span span_;
  Sum& sum_;
  double counts_;  // 0 for a reduction, whose own work counts as part of the update that follows
  Stopwatch stopwatch_;
};

}  // namespace stagecoach
