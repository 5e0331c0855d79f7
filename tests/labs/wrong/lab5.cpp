/// @file
/// Wrong answers to lab 5. Each differs from the solution (tests/labs/solutions/lab5.cpp) in one thing, or is an answer
/// that does not suffice.

#include "tests/labs/wrong/lab5.h"

#include <algorithm>

#include "chapters/05_interleaved/lab/interleaved.h"
#include "parallel/schedule/rank_actions.h"
#include "parallel/schedule/schedule_kinds.h"

namespace stagecoach::labs::lab5 {
namespace {

using lab::ScheduleTask;

/// What an interleaved generator decides, and what some get wrong.
struct Choices {
  std::vector<int> groups;   ///< the micro-batches of each group
  int group_of_warm_up = 0;  ///< N in the length of the warm-up; 0: that of the first group
  int extra = 0;             ///< forwards of the warm-up beyond those
  int ways = 2;              ///< 2: the warm-up counts the way to the last rank and back
  bool backward_chunks_reversed = true;
};

std::vector<int> right_groups(int p, int m) {
  const int count = std::max(m / p, 1);
  std::vector<int> sizes(static_cast<std::size_t>(count), m / count);
  std::for_each_n(sizes.begin(), m % count, [](int& size) { ++size; });
  return sizes;
}

Schedule interleaved_with(int p, int m, int v, const Choices& choices) {
  struct Pass {
    int microbatch;
    int chunk;
  };
  std::vector<Pass> passes;
  int first = 0;
  for (const int size : choices.groups) {
    for (int chunk = 0; chunk < v; ++chunk) {
      for (int i = first; i < first + size; ++i) {
        passes.push_back({i, chunk});
      }
    }
    first += size;
  }
  const int n = choices.group_of_warm_up == 0 ? choices.groups.front() : choices.group_of_warm_up;
  return for_each_rank(empty_schedule(p, m, v), [&](RankActions rank, int r) {
    one_f_one_b_order(
        static_cast<int>(passes.size()), choices.ways * (p - r - 1) + (v - 1) * n + choices.extra,
        [&](int i) {
          const auto [microbatch, chunk] = passes[static_cast<std::size_t>(i)];
          rank.forward(chunk * p + r, microbatch);
        },
        [&](int i) {
          const auto [microbatch, chunk] = passes[static_cast<std::size_t>(i)];
          rank.backward((choices.backward_chunks_reversed ? v - 1 - chunk : chunk) * p + r, microbatch);
        });
  });
}

Schedule warm_up_of_1f1b(int p, int m, int v) {
  return interleaved_with(p, m, v,
                          {.groups = right_groups(p, m), .extra = -(v - 1) * right_groups(p, m).front(), .ways = 1});
}
Schedule same_warm_up_everywhere(int p, int m, int v) {
  return interleaved_with(p, m, v, {.groups = right_groups(p, m), .ways = 0});
}
Schedule one_forward_too_many(int p, int m, int v) {
  return interleaved_with(p, m, v, {.groups = right_groups(p, m), .extra = 1});
}
Schedule backward_chunks_ascending(int p, int m, int v) {
  return interleaved_with(p, m, v, {.groups = right_groups(p, m), .backward_chunks_reversed = false});
}
Schedule warm_up_of_p(int p, int m, int v) {
  return interleaved_with(p, m, v, {.groups = right_groups(p, m), .group_of_warm_up = p});
}
Schedule one_group(int p, int m, int v) { return interleaved_with(p, m, v, {.groups = {m}}); }

/// Groups of p, and what is left over in a last one.
Schedule small_last_group(int p, int m, int v) {
  std::vector<int> groups(static_cast<std::size_t>(m / p), p);
  if (m % p > 0) {
    groups.push_back(m % p);
  }
  return interleaved_with(p, m, v, {.groups = groups, .group_of_warm_up = p});
}

Schedule left_over_dropped(int p, int m, int v) {
  return interleaved_with(p, m, v, {.groups = std::vector<int>(static_cast<std::size_t>(std::max(m / p, 1)), p)});
}

/// The whole groups, and then what is left over as if it were a step of its own.
Schedule left_over_at_the_end(int p, int m, int v) {
  const int whole = m / p * p;
  if (whole == 0 || whole == m) {
    return lab::interleaved(p, m, v);
  }
  Schedule schedule = lab::interleaved(p, whole, v);
  const Schedule more = lab::interleaved(p, m - whole, v);
  for_each_action(more, [&](std::size_t rank, std::size_t, const Action& action) {
    schedule.ranks[rank].push_back({action.operation, action.stage, action.microbatch + whole});
  });
  schedule.microbatches = m;
  return schedule;
}

/// Chunk c of rank r as stage r v + c, in the placement of the chapter.
Schedule neighbouring_stages(int p, int m, int v) {
  Schedule schedule = lab::interleaved(p, m, v);
  for (auto& actions : schedule.ranks) {
    for (Action& action : actions) {
      action.stage = action.stage % p * v + action.stage / p;
    }
  }
  return schedule;
}

/// The order of the last backwards turned round, stage by stage.
Schedule last_backwards_reversed(int p, int m, int v) {
  Schedule schedule = lab::interleaved(p, m, v);
  for (auto& actions : schedule.ranks) {
    const auto is_forward = [](const Action& action) { return action.operation == Operation::forward; };
    const auto after = std::find_if(actions.rbegin(), actions.rend(), is_forward).base();
    std::reverse(after, actions.end());
    std::stable_sort(after, actions.end(), [](const Action& a, const Action& b) { return a.stage > b.stage; });
  }
  return schedule;
}

// Part 2.

Placement two_neighbours_each(int p) {
  Placement placement;
  for (int rank = 0; rank < p; ++rank) {
    placement.stage_to_rank.insert(placement.stage_to_rank.end(), {rank, rank});
  }
  return placement;
}

/// 1F1B with each stage cut in two halves that stay together.
Schedule one_f_one_b(const ScheduleTask& task) {
  const int p = task.ranks;
  return for_each_rank(empty_schedule(two_neighbours_each(p), p, task.microbatches), [&](RankActions rank, int r) {
    one_f_one_b_order(
        task.microbatches, p - r - 1,
        [&](int i) {
          rank.forward(2 * r, i);
          rank.forward(2 * r + 1, i);
        },
        [&](int i) {
          rank.backward(2 * r + 1, i);
          rank.backward(2 * r, i);
        });
  });
}

Schedule zero_bubble_v(const ScheduleTask& task) { return make_schedule("zbv", task.ranks, task.microbatches); }

Schedule one_at_a_time(const ScheduleTask& task) {
  const int p = task.ranks;
  return for_each_rank(empty_schedule(v_placement(p), p, task.microbatches), [&](RankActions rank, int r) {
    for (int i = 0; i < task.microbatches; ++i) {
      rank.forward(r, i);
      rank.forward(2 * p - 1 - r, i);
      rank.backward(2 * p - 1 - r, i);
      rank.backward(r, i);
    }
  });
}

Schedule without_weight_gradients(const ScheduleTask& task) {
  Schedule schedule = lab::own_schedule(task);
  for (auto& actions : schedule.ranks) {
    std::erase_if(actions, [](const Action& action) { return action.operation == Operation::backward_weight; });
  }
  return schedule;
}

/// Takes the activations to be free after the input gradient: all weight gradients come at the end.
Schedule freed_after_the_input_gradient(const ScheduleTask& task) {
  Schedule schedule = lab::own_schedule(task);
  for (auto& actions : schedule.ranks) {
    std::stable_partition(actions.begin(), actions.end(),
                          [](const Action& action) { return action.operation != Operation::backward_weight; });
  }
  return schedule;
}

/// The solution with each backward in one piece, where its input gradient was.
Schedule backwards_in_one_piece(const ScheduleTask& task) {
  Schedule schedule = without_weight_gradients(task);
  for (auto& actions : schedule.ranks) {
    for (Action& action : actions) {
      action.operation = action.operation == Operation::backward_input ? Operation::backward : action.operation;
    }
  }
  return schedule;
}

/// A V in which stage 1 has come to rank 0 too.
Schedule three_stages_on_a_rank(const ScheduleTask& task) {
  Placement placement = v_placement(task.ranks);
  placement.stage_to_rank[1] = 0;
  Schedule schedule = empty_schedule(placement, task.ranks, task.microbatches);
  for (int i = 0; i < task.microbatches; ++i) {
    for (int stage = 0; stage < schedule.stage_count(); ++stage) {
      schedule.ranks[static_cast<std::size_t>(schedule.rank_of(stage, i))].push_back({Operation::forward, stage, i});
    }
    for (int stage = schedule.stage_count(); stage-- > 0;) {
      schedule.ranks[static_cast<std::size_t>(schedule.rank_of(stage, i))].push_back({Operation::backward, stage, i});
    }
  }
  return schedule;
}

constexpr const char* kLegal = "interleaved: legal where m is a multiple of p";
constexpr const char* kLegalForAll = "interleaved: legal for every other m";
constexpr const char* kIdle = "interleaved: idle for (p - 1) / (v m + p - 1) of the step where m is a multiple of p";
constexpr const char* kIdleForAll = "interleaved: the same idle time for every other m >= p";
constexpr const char* kActivations = "interleaved: no more activations than 2 (p - r - 1) + (v - 1) g + 1";

}  // namespace

std::vector<WrongAnswer<Answer>> wrong_answers() {
  return {
      {"warm_up_of_1f1b",
       "The warm-up is that of 1F1B without chunks, p - r - 1 forwards.",
       kLegal,
       {warm_up_of_1f1b, lab::own_schedule}},
      {"backward_chunks_ascending",
       "Backwards take the chunks from the first to the last, as forwards do.",
       kLegal,
       {backward_chunks_ascending, lab::own_schedule}},
      {"neighbouring_stages",
       "Chunk c of rank r is taken to be stage r v + c.",
       kLegal,
       {neighbouring_stages, lab::own_schedule}},
      {"left_over_dropped",
       "The micro-batches after the last whole group are left out.",
       kLegalForAll,
       {left_over_dropped, lab::own_schedule}},
      {"same_warm_up_everywhere",
       "The warm-up is the same on every rank: it does not count the way to the last rank.",
       kIdle,
       {same_warm_up_everywhere, lab::own_schedule}},
      {"small_last_group",
       "All groups have p micro-batches, and the last one what is left.",
       kLegalForAll,
       {small_last_group, lab::own_schedule}},
      {"warm_up_of_p",
       "The warm-up counts p micro-batches per group, although groups may be larger.",
       kLegalForAll,
       {warm_up_of_p, lab::own_schedule}},
      {"left_over_at_the_end",
       "The micro-batches after the last whole group begin when all others are done.",
       kIdleForAll,
       {left_over_at_the_end, lab::own_schedule}},
      {"one_group", "All micro-batches are one group.", kActivations, {one_group, lab::own_schedule}},
      {"one_forward_too_many",
       "The warm-up has one forward too many.",
       kActivations,
       {one_forward_too_many, lab::own_schedule}},
      {"last_backwards_reversed",
       "The remaining backwards run from the last micro-batch to the first.",
       "interleaved: backwards run in the order of the micro-batches",
       {last_backwards_reversed, lab::own_schedule}},
      {"without_weight_gradients",
       "The weight gradients are forgotten.",
       "own: legal, with two stages per rank",
       {lab::interleaved, without_weight_gradients}},
      {"three_stages_on_a_rank",
       "One rank has three stages and another one.",
       "own: legal, with two stages per rank",
       {lab::interleaved, three_stages_on_a_rank}},
      {"own_1f1b",
       "The schedule is 1F1B, which needs more memory than there is.",
       "own: within the memory",
       {lab::interleaved, one_f_one_b}},
      {"own_zbv",
       "The schedule is the library's zbv, which needs more memory than there is.",
       "own: within the memory",
       {lab::interleaved, zero_bubble_v}},
      {"freed_after_the_input_gradient",
       "Activations count as freed after the input gradient, but the weight gradient needs them.",
       "own: within the memory",
       {lab::interleaved, freed_after_the_input_gradient}},
      {"one_at_a_time",
       "One micro-batch at a time goes through all stages.",
       "own: no longer than 1F1B, which has more memory",
       {lab::interleaved, one_at_a_time}},
      {"backwards_in_one_piece",
       "Backwards are not split, so ranks wait for weight gradients that they do not need.",
       "own: at most 60% of the idle time of 1F1B",
       {lab::interleaved, backwards_in_one_piece}},
  };
}

}  // namespace stagecoach::labs::lab5
