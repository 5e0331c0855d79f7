#pragma once
/// @file
/// Measures the times of the parts of a rank's steps, and how much of the reductions' time overlaps with backwards.

#include <utility>
#include <vector>

#include "parallel/comm/comm_thread.h"

namespace stagecoach {

/// The mean step of all ranks, in seconds of their own work, without waits.
struct StepCosts {
  double forward = 0;                 ///< everything before the last backward
  double backward = 0;                ///< the last backward, whose gradients are reduced
  double update = 0;                  ///< everything after the reductions, on the slowest rank
  double update_share = 1;            ///< of the mean rank's `update` in that
  std::vector<double> arrivals = {};  ///< work before each parameter's gradient, since the backward began
  double overlap = 0;                 ///< share of the reductions' time within the backward
};

/// Collects the times of one rank, which calls the functions below in the order of a step.
class StepTimes {
 public:
  /// The first step begins now, and each other one with the end of the one before.
  StepTimes(Communicator& comm, std::size_t parameters)
      : comm_(&comm), mark_(without_waits()), sums_{.arrivals = std::vector<double>(parameters)}, step_(sums_) {}

  /// Marks the beginning of the step's last backward.
  void begin_backward();
  void gradient_arrived(std::size_t parameter) {
    gradient_arrived(parameter, comm_->clock().between(mark_, without_waits()));
  }
  /// Does the same for a gradient that arrived after `seconds` of work since the backward began.
  void gradient_arrived(std::size_t parameter, double seconds) { step_.arrivals[parameter] += seconds; }
  void end_backward();
  /// Marks the end of all reductions; `spans` are their times.
  void end_reductions(const std::vector<CommThread::Span>& spans);
  void end_step();

  void clear();
  /// Returns the mean step. All ranks call it together and get the same result.
  StepCosts mean() const;
  /// Returns what this rank did in each step, on a modelled clock; by other clocks nothing, as such times vary.
  const std::vector<StepCosts>& each() const { return each_; }

 private:
  double now() const { return comm_->clock().now(); }
  double without_waits() const { return now() - comm_->clock().waited(); }

  /// Returns the seconds of work since the current part began, and begins the next one.
  double end_part() {
    const double mark = without_waits();
    return comm_->clock().between(std::exchange(mark_, mark), mark);
  }

  Communicator* comm_;
  double mark_ = 0;      // start of the current part
  double backward_ = 0;  // start of the last backward, on the clock
  double backward_end_ = 0;
  double steps_ = 0;
  // Sums over the steps.
  StepCosts sums_;
  double reduction_seconds_ = 0;
  double hidden_seconds_ = 0;
  StepCosts step_;  // the current one
  std::vector<StepCosts> each_;
};

}  // namespace stagecoach
