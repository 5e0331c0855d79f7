#pragma once
/// @file
/// How fast a step of a pipeline can be at best: found without its table, in microseconds.

#include <vector>

#include "parallel/advise/stage_seconds.h"
#include "parallel/schedule/schedule_kinds.h"

namespace stagecoach {

/// The seconds of what happens in a step besides computations.
struct StepRest {
  std::vector<double> messages;    ///< between neighbouring stages on different ranks: [stages - 1]
  std::vector<double> reductions;  ///< of each stage's gradients over its replicas: [stages]
  std::vector<double> updates;     ///< of each rank: [ranks]
};

/// Returns which rank holds which stage in a schedule of this kind.
Placement placement_of(const ScheduleKind& kind, int ranks, int chunks);

/// Returns the largest of these bounds of a step:
/// - A rank can begin the forwards of a stage when the first micro-batch has passed all stages before it, and the
///   backwards when it has passed all, there and back. After the last backward, its gradient has to reach the first
///   stage, gradients are reduced, and ranks update. For any part of a rank's work, the step takes at least the
///   earliest of these beginnings, all of that work, and the shortest of these ends. Source: Carlier, "The one-machine
///   sequencing problem", 1982, section 2.2.
/// - A rank keeps each micro-batch while it is on its way from a stage to the loss and back, and no more of them than
///   the schedule allows (ScheduleKind::peak_activations): the times of all, divided by their number. Source: Little,
///   "A proof for the queuing formula L = λW", 1961.
double least_step_seconds(const ScheduleKind& kind, const ScheduleSizes& sizes, const std::vector<StageSeconds>& stages,
                          const StepRest& rest);

}  // namespace stagecoach
