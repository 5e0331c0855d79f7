#include "tests/labs/lab5.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "tests/labs/class_settings.h"
#include "tests/labs/schedule_checks.h"

namespace stagecoach::labs::lab5 {
namespace {

constexpr const char* kOrder = "chapters/05_interleaved/README.md, \"Interleaved\": the three steps of an action";
constexpr const char* kGroups = "chapters/05_interleaved/lab/interleaved.h: how micro-batches are divided into groups";
constexpr const char* kOwn = "chapters/05_interleaved/lab/README.md, part 2, and its hints";

/// One call of the generator of part 1.
struct Question {
  int ranks;
  int microbatches;
  int chunks;
  ScheduleCase made_for() const {
    return {.ranks = ranks,
            .microbatches = microbatches,
            .stages_per_rank = chunks,
            .more = fmt::format(", {} chunks per rank", chunks)};
  }
  /// The number of micro-batches of the largest group.
  int largest_group() const { return ceil_div(microbatches, std::max(microbatches / ranks, 1)); }
};

/// Where groups of p micro-batches fit.
std::vector<Question> multiples() {
  const int p = varied("lab 5 ranks", 4, 6);
  return {{4, 8, 2}, {4, 4, 2}, {2, 6, 3}, {p, 3 * p, 2}, {3, 9, 4}};
}

/// Where they do not: with up to p - 1 left over.
std::vector<Question> others() {
  const int p = varied("lab 5 ranks", 4, 6);
  return {{4, 10, 2}, {4, 7, 2}, {4, 13, 2}, {2, 5, 3}, {p, 2 * p + 1, 3}, {p, 4 * p - 1, 2}, {5, 11, 4}};
}

std::vector<Question> fewer_than_ranks() { return {{4, 1, 2}, {4, 3, 2}, {5, 2, 3}}; }

template <class Body>
void for_each_schedule(const Answer& answer, const std::vector<std::vector<Question>>& questions, const Body& body) {
  for (const auto& list : questions) {
    for (const Question& question : list) {
      body(answer.interleaved(question.ranks, question.microbatches, question.chunks), question);
    }
  }
}

/// Throws Failed unless chunk c of rank r is stage c p + r.
void require_placement(const Schedule& schedule, const Question& question) {
  for (int stage = 0; stage < schedule.stage_count(); ++stage) {
    if (const int rank = schedule.stage_to_rank[static_cast<std::size_t>(stage)]; rank != stage % question.ranks) {
      throw Failed(
          fmt::format("stage {} on rank {}, for {}", stage, stage % question.ranks, to_string(question.made_for())),
          fmt::format("on rank {}", rank), "chapters/05_interleaved/lab/interleaved.h");
    }
  }
}

void legal(const Answer& answer, const std::vector<std::vector<Question>>& questions, const char* look_at) {
  for_each_schedule(answer, questions, [&](const Schedule& schedule, const Question& question) {
    require_legal(schedule, question.made_for(), look_at);
    require_placement(schedule, question);
  });
}

/// The time of the formula: 3 m + 3 (p - 1) / v units.
void time_of_formula(const Answer& answer, const std::vector<Question>& questions, const char* look_at) {
  for_each_schedule(answer, {questions}, [&](const Schedule& schedule, const Question& question) {
    const auto& [p, m, v] = question;
    require_time(schedule, 3.0 * m + 3.0 * (p - 1) / v, question.made_for(), look_at);
  });
}

void activations(const Answer& answer) {
  const auto questions = {multiples(), others(), fewer_than_ranks()};
  for_each_schedule(answer, questions, [](const Schedule& schedule, const Question& question) {
    const auto& [p, m, v] = question;
    std::vector<int> most;
    for (int r = 0; r < p; ++r) {
      most.push_back(std::min(m * v, 2 * (p - r - 1) + (v - 1) * question.largest_group() + 1));
    }
    require_activations(schedule, most, question.made_for(), kOrder);
  });
}

void backwards_in_order(const Answer& answer) {
  const auto questions = {multiples(), others(), fewer_than_ranks()};
  for_each_schedule(answer, questions, [](const Schedule& schedule, const Question& question) {
    require_backwards_in_order(schedule, question.made_for(), kOrder);
  });
}

// Part 2.

/// The memory is three quarters of the 2 p activations that the first rank of 1F1B and every rank of zbv hold.
std::vector<lab::ScheduleTask> tasks() {
  const int p = varied("lab 5 ranks of the league", 4, 6);
  const int m = varied("lab 5 micro-batches of the league", 12, 16);
  return {{.ranks = p, .microbatches = m, .activations = ceil_div(3 * p, 2)},
          {.ranks = 3, .microbatches = 9, .activations = 5}};
}

ScheduleCase made_for(const lab::ScheduleTask& task) {
  return {.ranks = task.ranks,
          .microbatches = task.microbatches,
          .stages_per_rank = 2,
          .more = fmt::format(", {} activations", task.activations)};
}

/// Throws Failed unless each rank holds two stages.
void require_two_stages(const Schedule& schedule, const lab::ScheduleTask& task) {
  for (int rank = 0; rank < schedule.rank_count(); ++rank) {
    if (const auto stages = schedule.stages_of(rank); stages.size() != 2) {
      throw Failed(fmt::format("two stages on rank {}, for {}", rank, to_string(made_for(task))),
                   fmt::format("stages {}", fmt::join(stages, ", ")), "chapters/05_interleaved/lab/own_schedule.h");
    }
  }
}

/// Returns the answer to `task`. Throws Failed unless it is legal.
Schedule legal_answer(const Answer& answer, const lab::ScheduleTask& task) {
  Schedule schedule = answer.own_schedule(task);
  require_legal(schedule, made_for(task), kOwn);
  require_two_stages(schedule, task);
  return schedule;
}

/// Returns the answer to `task`. Throws Failed unless it is legal and keeps to the memory.
Schedule fitting_answer(const Answer& answer, const lab::ScheduleTask& task) {
  Schedule schedule = legal_answer(answer, task);
  require_activations(schedule, std::vector<int>(static_cast<std::size_t>(task.ranks), task.activations),
                      made_for(task), kOwn);
  return schedule;
}

void own_is_legal(const Answer& answer) {
  for (const lab::ScheduleTask& task : tasks()) {
    legal_answer(answer, task);
  }
}

void own_keeps_to_the_memory(const Answer& answer) {
  for (const lab::ScheduleTask& task : tasks()) {
    fitting_answer(answer, task);
  }
  const lab::ScheduleTask task = tasks().front();
  const Schedule schedule = fitting_answer(answer, task);
  const Simulation simulation = simulated(schedule);
  const auto most = std::max_element(simulation.peak_activations.begin(), simulation.peak_activations.end());
  note(fmt::format("league: idle {:.6f}, step {:.4g} units, {} of {} activations, for {} ranks and {} micro-batches",
                   simulation.idle, simulation.seconds, *most, task.activations, task.ranks, task.microbatches));
}

/// Throws Failed if the idle time of a step is longer than `share` of that of 1F1B, 3 (p - 1) units.
void require_idle_time(const Answer& answer, double share) {
  for (const lab::ScheduleTask& task : tasks()) {
    const double most = 3.0 * task.microbatches + share * 3.0 * (task.ranks - 1);
    require_time(fitting_answer(answer, task), most, made_for(task), kOwn);
  }
}

}  // namespace

std::vector<Criterion> criteria(const Answer& answer) {
  return {
      {"interleaved: legal where m is a multiple of p", 10, [=] { legal(answer, {multiples()}, kOrder); }},
      {"interleaved: legal for every other m", 10,
       [=] {
         legal(answer, {others(), fewer_than_ranks()}, kGroups);
       }},
      {"interleaved: idle for (p - 1) / (v m + p - 1) of the step where m is a multiple of p", 10,
       [=] { time_of_formula(answer, multiples(), kOrder); }},
      {"interleaved: the same idle time for every other m >= p", 15,
       [=] { time_of_formula(answer, others(), kGroups); }},
      {"interleaved: no more activations than 2 (p - r - 1) + (v - 1) N + 1", 10, [=] { activations(answer); }},
      {"interleaved: backwards run in the order of the micro-batches", 5, [=] { backwards_in_order(answer); }},
      {"own: legal, with two stages per rank", 10, [=] { own_is_legal(answer); }},
      {"own: within the memory", 10, [=] { own_keeps_to_the_memory(answer); }},
      {"own: no longer than 1F1B, which has more memory", 10, [=] { require_idle_time(answer, 1); }},
      {"own: at most 60% of the idle time of 1F1B", 10, [=] { require_idle_time(answer, 0.6); }},
  };
}

}  // namespace stagecoach::labs::lab5
