#include "tests/labs/lab5.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "parallel/schedule/text.h"
#include "tests/labs/class_settings.h"
#include "tests/labs/schedule_checks.h"

namespace stagecoach::labs::lab5 {
namespace {

constexpr const char* kOrder =
    "docs/reference/interleaved.md, \"The order\": three questions; scripts/lab.sh hint 5 1 1";
constexpr const char* kGroups =
    "chapters/05_interleaved/lab/interleaved.h: which groups come first, and how long is the warm-up? "
    "scripts/lab.sh hint 5 2 1";
constexpr const char* kWarmUp =
    "how long is the warm-up, and with which g? docs/reference/interleaved.md, \"The order\": three questions; "
    "scripts/lab.sh hint 5 2 1";
constexpr const char* kGroupSizes =
    "how many groups, and how large? chapters/05_interleaved/lab/interleaved.h; scripts/lab.sh hint 5 2 1";
constexpr const char* kOwn = "chapters/05_interleaved/lab/README.md, part 2";
constexpr const char* kStuck =
    "does your simulation wait for something that cannot come, or does it take longer than the 5 s that a check has? "
    "scripts/lab.sh hint 5 1 2";

constexpr double kShareOfIdleTime = 0.6;  // that 1F1B has, for the last criterion

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

/// Returns the sizes of the groups, the largest first: as many as have p micro-batches each, at least one.
std::vector<int> right_groups(const Question& question) {
  const int count = std::max(question.microbatches / question.ranks, 1);
  std::vector<int> sizes(static_cast<std::size_t>(count), question.microbatches / count);
  std::for_each_n(sizes.begin(), question.microbatches % count, [](int& size) { ++size; });
  return sizes;
}

/// Returns the sizes of the groups of a schedule, in their order: how many forwards of stage 0, which is chunk 0 of
/// rank 0, come before one of another chunk.
std::vector<int> groups_of(const Schedule& schedule) {
  std::vector<int> sizes;
  bool goes_on = false;
  for (const Action& action : schedule.ranks.front()) {
    if (action.operation == Operation::forward) {
      if (action.stage == 0 && goes_on) {
        ++sizes.back();
      } else if (action.stage == 0) {
        sizes.push_back(1);
      }
      goes_on = action.stage == 0;
    }
  }
  return sizes;
}

/// Throws Failed if the schedule has all micro-batches, but in groups of other sizes than it should. Their order is
/// free.
void require_group_sizes(const Schedule& schedule, const Question& question, const std::string& drawing) {
  const std::vector<int> got = schedule.ranks.empty() ? std::vector<int>() : groups_of(schedule);
  const std::vector<int> expected = right_groups(question);
  if (std::accumulate(got.begin(), got.end(), 0) == question.microbatches &&
      !std::is_permutation(got.begin(), got.end(), expected.begin(), expected.end())) {
    throw Failed(fmt::format("groups of {}, for {}", fmt::join(expected, ", "), to_string(question.made_for())),
                 fmt::format("groups of {}, by the forwards of stage 0", fmt::join(got, ", ")), kGroupSizes, drawing);
  }
}

/// Calls body(schedule, question) for each question. If that fails and the groups are wrong, throws Failed that says
/// so: what else is wrong may follow from it.
template <class Body>
void for_each_schedule(const Answer& answer, const std::vector<std::vector<Question>>& questions, const Body& body) {
  for (const auto& list : questions) {
    for (const Question& question : list) {
      set_case(to_string(question.made_for()));
      const Schedule schedule = answer.interleaved(question.ranks, question.microbatches, question.chunks);
      try {
        body(schedule, question);
      } catch (const Failed& failed) {
        require_group_sizes(schedule, question, failed.explanation().drawing);
        throw;
      }
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

/// The time of the formula: 3 m v + 3 (p - 1) units.
void time_of_formula(const Answer& answer, const std::vector<Question>& questions) {
  for_each_schedule(answer, {questions}, [&](const Schedule& schedule, const Question& question) {
    const auto& [p, m, v] = question;
    require_time(schedule, 3.0 * m * v + 3.0 * (p - 1), question.made_for(), kWarmUp);
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
    require_activations(schedule, most, question.made_for(), kWarmUp);
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

/// Throws Failed if actions are missing after which a rank's memory is full: the generator waited for room.
void require_not_stuck(const Schedule& schedule, const lab::ScheduleTask& task) {
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    int held = 0;
    int peak = 0;
    int backwards = 0;
    for (const Action& action : schedule.ranks[rank]) {
      held += action.operation == Operation::forward ? 1 : gives_weight_gradient(action.operation) ? -1 : 0;
      peak = std::max(peak, held);
      backwards += gives_weight_gradient(action.operation) ? 1 : 0;
    }
    if (held == task.activations && peak == held && backwards < 2 * task.microbatches) {
      throw Failed(fmt::format("all actions of {} micro-batches, for {}", task.microbatches, to_string(made_for(task))),
                   fmt::format("rank {} ends with {} of {} activations held: no other forward has room there, and no "
                               "backward comes any more",
                               rank, held, task.activations),
                   kStuck, drawn(schedule));
    }
  }
}

/// Returns the answer to `task`. Throws Failed unless it is legal.
Schedule legal_answer(const Answer& answer, const lab::ScheduleTask& task) {
  set_case(to_string(made_for(task)));
  Schedule schedule = answer.own_schedule(task);
  require_not_stuck(schedule, task);
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

/// Returns the units that a step may take if its idle time is `share` of that of 1F1B, which runs the two stages of a
/// rank as one: 6 (p - 1) units.
double max_units(const lab::ScheduleTask& task, double share) {
  return 6.0 * task.microbatches + share * 6.0 * (task.ranks - 1);
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
  note(fmt::format("with the idle time of 1F1B: {:.4g} units; with 60% of it: {:.4g}; with none: {:.4g}",
                   max_units(task, 1), max_units(task, kShareOfIdleTime), max_units(task, 0)));
}

/// Throws Failed if the idle time of a step is longer than `share` of that of 1F1B.
void require_idle_time(const Answer& answer, double share) {
  for (const lab::ScheduleTask& task : tasks()) {
    require_time(fitting_answer(answer, task), max_units(task, share), made_for(task), kOwn);
  }
}

}  // namespace

std::vector<Criterion> criteria(const Answer& answer) {
  const char* const kLegal = "interleaved: legal where m is a multiple of p";
  const char* const kLegalForAll = "interleaved: legal for every other m";
  const char* const kOwnLegal = "own: legal, with two stages per rank";
  const char* const kWithinMemory = "own: within the memory";
  const auto others_are_legal = [=] { legal(answer, {others(), fewer_than_ranks()}, kGroups); };
  return {
      {kLegal, 10, [=] { legal(answer, {multiples()}, kOrder); }, kOrder},
      {kLegalForAll, 10, others_are_legal, kGroups, {kLegal}},
      {"interleaved: idle for (p - 1) / (v m + p - 1) of the step where m is a multiple of p",
       10,
       [=] { time_of_formula(answer, multiples()); },
       kWarmUp,
       {kLegal}},
      {"interleaved: the same idle time for every other m >= p",
       15,
       [=] { time_of_formula(answer, others()); },
       kWarmUp,
       {kLegal, kLegalForAll}},
      {"interleaved: no more activations than 2 (p - r - 1) + (v - 1) g + 1", 10, [=] { activations(answer); },
       kWarmUp},
      {"interleaved: backwards run in the order of the micro-batches", 5, [=] { backwards_in_order(answer); }, kOrder},
      {kOwnLegal, 10, [=] { own_is_legal(answer); }, kStuck},
      {kWithinMemory, 10, [=] { own_keeps_to_the_memory(answer); }, kStuck, {kOwnLegal}},
      {"own: no longer than 1F1B, which has more memory",
       10,
       [=] { require_idle_time(answer, 1); },
       kStuck,
       {kOwnLegal, kWithinMemory}},
      {"own: at most 60% of the idle time of 1F1B",
       10,
       [=] { require_idle_time(answer, kShareOfIdleTime); },
       kStuck,
       {kOwnLegal, kWithinMemory}},
  };
}

std::string drawing(const Answer& answer) {
  const lab::ScheduleTask task = tasks().front();
  set_case(to_string(made_for(task)));
  const Schedule schedule = answer.own_schedule(task);
  std::string table = to_text(schedule);
  std::replace(table.begin(), table.end(), '\n', ';');
  return fmt::format(
      "own_schedule, for {}\n{}\nin the playground, with the memory limit: playground.html#limit={}&table={}\n",
      to_string(made_for(task)), drawn(schedule), task.activations / 2.0, table);  // two stages per rank
}

}  // namespace stagecoach::labs::lab5
