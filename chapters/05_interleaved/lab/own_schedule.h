#pragma once
/// @file
/// Lab 5, part 2: a schedule of your own, as fast as the memory allows.

#include "parallel/schedule/schedule.h"

namespace stagecoach::lab {

/// The task: a model of 2 * ranks equal stages. Each stage takes 1 unit for a forward, 1 for an input gradient and 1
/// for a weight gradient (a whole backward takes 2), so a rank has 6 units of work per micro-batch. Messages take no
/// time.
struct ScheduleTask {
  int ranks;
  int microbatches;
  /// The most activations of a stage and a micro-batch that a rank has memory for. One is held from the start of the
  /// forward to the end of the backward (B) or of the weight gradient (W). It is at least 4.
  int activations;
};

/// Returns a legal schedule in which each rank holds two stages, placed as you like, and at no time more than
/// `task.activations` activations. The shorter the step that `simulate` predicts, the better.
Schedule own_schedule(const ScheduleTask& task);

}  // namespace stagecoach::lab
