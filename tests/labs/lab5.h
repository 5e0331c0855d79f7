#pragma once
/// @file
/// The grader of lab 5: the interleaved generator and a schedule of the student's own.

#include <functional>
#include <string>
#include <vector>

#include "chapters/05_interleaved/lab/own_schedule.h"
#include "parallel/schedule/schedule.h"
#include "tests/labs/grading.h"

namespace stagecoach::labs::lab5 {

/// The functions that the student writes; see chapters/05_interleaved/lab/.
struct Answer {
  std::function<Schedule(int ranks, int microbatches, int chunks)> interleaved;
  std::function<Schedule(const lab::ScheduleTask& task)> own_schedule;
};

std::vector<Criterion> criteria(const Answer& answer);

/// Returns the timeline of the answer's own schedule for the task of the league.
std::string drawing(const Answer& answer);

}  // namespace stagecoach::labs::lab5
