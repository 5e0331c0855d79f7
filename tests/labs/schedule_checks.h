#pragma once
/// @file
/// What the graders of the labs about schedules have in common: a schedule is legal, and if not, it is drawn.

#include <string>
#include <vector>

#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach::labs {

/// The arguments for which a generator was called.
struct ScheduleCase {
  int ranks = 1;
  int microbatches = 1;
  int stages_per_rank = 1;
  std::string more = {};  ///< further arguments, as the text shows them: ", limits 4, 2, 2, 1"
};
/// Returns "4 ranks, 8 micro-batches, limits 4, 2, 2, 1".
std::string to_string(const ScheduleCase& made_for);

/// Returns the timeline of `schedule`, and what its letters and its scale mean. If ranks wait for each other
/// forever, it shows what runs before that, and below it the action at which each rank waits. If actions are missing or
/// listed twice, it is the table instead, cut off where a line becomes too long.
std::string drawn(const Schedule& schedule);

/// Throws Failed unless `schedule` has the ranks, stages and micro-batches of `made_for`, and `check` finds no problem
/// in it. The failure draws it.
void require_legal(const Schedule& schedule, const ScheduleCase& made_for, const std::string& look_at);
/// Does the same, but a deadlock is not a problem: for a criterion about something else.
void require_complete(const Schedule& schedule, const ScheduleCase& made_for, const std::string& look_at);
/// Throws Failed unless each rank runs the backwards of each of its stages from the first micro-batch to the last.
void require_backwards_in_order(const Schedule& schedule, const ScheduleCase& made_for, const std::string& look_at);
/// Throws Failed unless rank r has at most most[r] micro-batches between forward and backward, added up over its
/// stages.
void require_activations(const Schedule& schedule, const std::vector<int>& most, const ScheduleCase& made_for,
                         const std::string& look_at);
/// Throws Failed unless the simulated step takes at most `most` units. In all labs a forward of a stage takes 1 unit.
void require_time(const Schedule& schedule, double most, const ScheduleCase& made_for, const std::string& look_at);

/// Returns the simulation of a legal schedule in which each stage takes 1 unit for a forward, 1 for an input gradient
/// and 1 for a weight gradient (a whole backward takes 2). Messages take no time.
Simulation simulated(const Schedule& schedule);

}  // namespace stagecoach::labs
