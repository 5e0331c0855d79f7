#pragma once
/// @file
/// Helpers for generators: an empty schedule, and a writer that appends to a rank's list of actions.

#include <algorithm>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// Returns a schedule of `microbatches` micro-batches on `ranks` ranks, without actions; `placement` can be any map
/// from stages to ranks. Throws UsageError for sizes below 1.
Schedule empty_schedule(const Placement& placement, int ranks, int microbatches);
/// Returns the same with `chunks` stages per rank, round-robin.
Schedule empty_schedule(int ranks, int microbatches, int chunks = 1);

/// Appends to the actions of one rank.
class RankActions {
 public:
  explicit RankActions(std::vector<Action>& actions) : actions_(actions) {}
  void forward(int stage, int microbatch) { add(Operation::forward, stage, microbatch); }
  void backward(int stage, int microbatch) { add(Operation::backward, stage, microbatch); }
  void backward_input(int stage, int microbatch) { add(Operation::backward_input, stage, microbatch); }
  void backward_weight(int stage, int microbatch) { add(Operation::backward_weight, stage, microbatch); }

 private:
  void add(Operation operation, int stage, int microbatch) { actions_.push_back({operation, stage, microbatch}); }
  std::vector<Action>& actions_;
};

/// Calls body(actions of the rank, rank) for each rank of `schedule`, and returns the schedule.
template <class Body>
Schedule for_each_rank(Schedule schedule, const Body& body) {
  for (int r = 0; r < schedule.rank_count(); ++r) {
    body(RankActions(schedule.ranks[static_cast<std::size_t>(r)]), r);
  }
  return schedule;
}

/// Runs the three phases of 1F1B over `total` passes: `warm_up` forwards (or `total`, if that is fewer), then forwards
/// and backwards alternately, then the remaining backwards. forward(i) and backward(i) run the i-th pass of their kind.
template <class Forward, class Backward>
void one_f_one_b_order(int total, int warm_up, const Forward& forward, const Backward& backward) {
  warm_up = std::min(warm_up, total);
  for (int i = 0; i < warm_up; ++i) {
    forward(i);
  }
  for (int i = warm_up; i < total; ++i) {
    forward(i);
    backward(i - warm_up);
  }
  for (int i = total - warm_up; i < total; ++i) {
    backward(i);
  }
}

/// Runs the same with each backward in two parts: weight gradients run `waiting` passes after their input gradients.
/// Those that still wait are run at the end, while other ranks still work.
template <class Forward, class BackwardInput, class BackwardWeight>
void zero_bubble_order(int total, int warm_up, int waiting, const Forward& forward, const BackwardInput& backward_input,
                       const BackwardWeight& backward_weight) {
  int weights = 0;  // weight gradients so far
  one_f_one_b_order(total, warm_up, forward, [&](int i) {
    backward_input(i);
    if (i >= waiting) {
      backward_weight(weights++);
    }
  });
  while (weights < total) {
    backward_weight(weights++);
  }
}

}  // namespace stagecoach
