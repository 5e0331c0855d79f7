#pragma once
/// @file
/// What the parts of a rank's steps take, and how much of the reductions' time lies within backwards.

#include <vector>

#include "parallel/comm/comm_thread.h"

namespace stagecoach {

/// The mean step of all ranks, in seconds of their own work, without waits.
struct StepCosts {
  double forward = 0;                 ///< all before the last backward
  double backward = 0;                ///< the last one, whose gradients are reduced
  double update = 0;                  ///< all behind the reductions, on the rank that takes longest
  std::vector<double> arrivals = {};  ///< of each parameter's gradient, since the backward began, in work
  double overlap = 0;                 ///< share of the reductions' time within the backward
};

/// Of one rank: it enters the moments of its steps in their order.
class StepTimes {
 public:
  StepTimes(Communicator& comm, std::size_t parameters) : comm_(&comm), arrivals_(parameters) {}

  void begin_step();
  /// The last backward of the step.
  void begin_backward();
  void gradient_came(std::size_t parameter) { gradient_came(parameter, without_waits() - mark_); }
  /// The same, after `seconds` of work since the backward began.
  void gradient_came(std::size_t parameter, double seconds) { arrivals_[parameter] += seconds; }
  void end_backward();
  /// All are in; each took `spans`.
  void end_reductions(const std::vector<CommThread::Span>& spans);
  void end_step();

  void clear();
  /// All ranks call it together and get the same.
  StepCosts mean() const;

 private:
  double now() const { return comm_->clock().now(); }
  double without_waits() const { return now() - comm_->clock().waited(); }

  Communicator* comm_;
  double mark_ = 0;      // of the part under way
  double backward_ = 0;  // when it began, by the clock
  double backward_end_ = 0;
  // Sums over the steps.
  double steps_ = 0;
  double forward_seconds_ = 0;
  double backward_seconds_ = 0;
  double update_seconds_ = 0;
  double reduction_seconds_ = 0;
  double hidden_seconds_ = 0;
  std::vector<double> arrivals_;
};

}  // namespace stagecoach
