#pragma once
/// @file
/// The grader of lab 3: GPipe's schedule as a generator, and the loop that runs a table.

#include <functional>
#include <vector>

#include "chapters/03_gpipe/lab/run_table.h"
#include "parallel/schedule/schedule.h"
#include "tests/labs/grading.h"

namespace stagecoach::labs::lab3 {

/// The functions that the student writes; see chapters/03_gpipe/lab/.
struct Answer {
  std::function<Schedule(const std::vector<int>& stage_to_rank, int microbatches)> descending_gpipe;
  std::function<double(const lab::TableStep& step)> run_table;
};

std::vector<Criterion> criteria(const Answer& answer);

}  // namespace stagecoach::labs::lab3
