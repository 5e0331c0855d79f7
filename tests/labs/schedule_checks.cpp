#include "tests/labs/schedule_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <vector>

#include "parallel/schedule/check.h"
#include "parallel/schedule/dependency_replay.h"
#include "parallel/schedule/draw.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/text.h"
#include "tests/labs/grading.h"

namespace stagecoach::labs {
namespace {

bool is_deadlock(const std::string& problem) { return problem.starts_with("deadlock"); }

/// Returns one line per rank, each cut off at 100 characters.
std::string table_of(const Schedule& schedule) {
  std::istringstream lines(to_text(schedule));
  std::string table;
  std::string line;
  for (int rank = 0; std::getline(lines, line); ++rank) {
    constexpr std::size_t kLongest = 100;
    table += fmt::format("rank {}  {}{}\n", rank, line.substr(0, kLongest), line.size() > kLongest ? "…" : "");
  }
  return table;
}

/// Returns what a reader needs beside the letters of a timeline.
std::string scale_of(const Schedule& schedule) {
  bool is_split = false;  // a backward
  for_each_action(schedule, [&](std::size_t, std::size_t, const Action& action) {
    is_split = is_split || action.operation == Operation::backward_input;
  });
  const bool has_chunks = schedule.stage_count() > schedule.rank_count();
  return fmt::format("        F takes 1 unit{}, B 2{}\n", is_split ? ", I 1, W 1" : "",
                     has_chunks ? "; a, b, …: the rank's first stage, its second, and so on" : "");
}

/// Returns the timeline of the actions that can run, and for each rank that waits forever, where.
std::string timeline_of(const Schedule& schedule) {
  const Schedule lowered = schedule.is_lowered ? schedule : lower(schedule);
  Schedule ran = schedule;
  ran.is_lowered = false;
  for (auto& actions : ran.ranks) {
    actions.clear();
  }
  DependencyReplay replay(lowered, false);
  replay.run([&](int rank, const Action& action) {
    if (is_computation(action.operation)) {
      ran.ranks[static_cast<std::size_t>(rank)].push_back(action);
    }
  });
  std::string waits;
  for (int rank = 0; rank < lowered.rank_count(); ++rank) {
    if (!replay.is_done(rank)) {
      waits += fmt::format("rank {} waits forever at {}\n", rank,
                           stagecoach::to_string(lowered.ranks[static_cast<std::size_t>(rank)][replay.next(rank)]));
    }
  }
  ran = lower(ran);
  return draw_text(ran, simulate(ran, Costs::uniform(ran.stage_count(), 1, 1, 1))) + scale_of(ran) + waits;
}

Failed failure(const std::string& expected, const std::string& got, const ScheduleCase& made_for,
               const std::string& look_at, const std::string& drawing) {
  return {fmt::format("{}, for {}", expected, to_string(made_for)), got, look_at, drawing};
}

void require_sizes(const Schedule& schedule, const ScheduleCase& made_for, const std::string& look_at) {
  const int stages = made_for.ranks * made_for.stages_per_rank;
  if (schedule.rank_count() != made_for.ranks || schedule.stage_count() != stages ||
      schedule.microbatches != made_for.microbatches) {
    throw failure(
        fmt::format("{} ranks, {} stages and {} micro-batches", made_for.ranks, stages, made_for.microbatches),
        fmt::format("{}, {} and {}", schedule.rank_count(), schedule.stage_count(), schedule.microbatches), made_for,
        look_at, "");
  }
}

void require_none(const std::vector<std::string>& problems, const Schedule& schedule, const ScheduleCase& made_for,
                  const std::string& look_at) {
  if (!problems.empty()) {
    constexpr std::size_t kShown = 3;
    const auto end = problems.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, problems.size()));
    throw failure("a legal schedule", fmt::format("{}", fmt::join(problems.begin(), end, "; ")), made_for, look_at,
                  drawn(schedule));
  }
}

}  // namespace

std::string drawn(const Schedule& schedule) {
  const std::vector<std::string> problems = check(schedule);
  const bool can_be_drawn = std::all_of(problems.begin(), problems.end(), is_deadlock);
  return can_be_drawn ? timeline_of(schedule) : table_of(schedule);
}

std::string to_string(const ScheduleCase& made_for) {
  return fmt::format("{} rank{}, {} micro-batch{}{}", made_for.ranks, made_for.ranks == 1 ? "" : "s",
                     made_for.microbatches, made_for.microbatches == 1 ? "" : "es", made_for.more);
}

void require_legal(const Schedule& schedule, const ScheduleCase& made_for, const std::string& look_at) {
  require_sizes(schedule, made_for, look_at);
  require_none(check(schedule), schedule, made_for, look_at);
}

void require_complete(const Schedule& schedule, const ScheduleCase& made_for, const std::string& look_at) {
  require_sizes(schedule, made_for, look_at);
  std::vector<std::string> problems = check(schedule);
  std::erase_if(problems, is_deadlock);
  require_none(problems, schedule, made_for, look_at);
}

void require_backwards_in_order(const Schedule& schedule, const ScheduleCase& made_for, const std::string& look_at) {
  require_complete(schedule, made_for, look_at);
  std::map<int, int> next;  // per stage: the micro-batch whose gradient its weights should get next
  for_each_action(schedule, [&](std::size_t rank, std::size_t, const Action& action) {
    if (gives_weight_gradient(action.operation) && action.microbatch != next[action.stage]++) {
      const Action expected{action.operation, action.stage, next[action.stage] - 1};
      throw failure(fmt::format("{} on rank {} next", stagecoach::to_string(expected), rank),
                    stagecoach::to_string(action), made_for, look_at, drawn(schedule));
    }
  });
}

void require_activations(const Schedule& schedule, const std::vector<int>& most, const ScheduleCase& made_for,
                         const std::string& look_at) {
  require_complete(schedule, made_for, look_at);
  const std::vector<int> peaks = peak_activations(schedule);
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
    if (peaks[rank] > most[rank]) {
      throw failure(fmt::format("at most {} activations on rank {}", most[rank], rank), std::to_string(peaks[rank]),
                    made_for, look_at, drawn(schedule));
    }
  }
}

void require_time(const Schedule& schedule, double most, const ScheduleCase& made_for, const std::string& look_at) {
  require_legal(schedule, made_for, look_at);
  constexpr double kRounding = 1e-6;
  const double seconds = simulated(schedule).seconds;
  if (seconds > most + kRounding) {
    throw failure(fmt::format("a step of at most {:.4g} units", most), fmt::format("{:.4g}", seconds), made_for,
                  look_at, drawn(schedule));
  }
}

Simulation simulated(const Schedule& schedule) {
  return simulate(lower(schedule), Costs::uniform(schedule.stage_count(), 1, 1, 1));
}

}  // namespace stagecoach::labs
