#include "tests/labs/lab3.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/text.h"
#include "tests/labs/class_settings.h"
#include "tests/labs/schedule_checks.h"
#include "tests/labs/tiny_training.h"

namespace stagecoach::labs::lab3 {
namespace {

constexpr const char* kGenerator = "chapters/03_gpipe/lab/descending_gpipe.h; chapter 3, \"The program\"";
constexpr const char* kLoop = "chapters/03_gpipe/lab/run_table.h; chapter 3, \"A schedule is a value\"";
constexpr const char* kBytes = "docs/reference/schedule_tables.md; Stage::add_gradients_in_order";
constexpr const char* kTags = "chapters/03_gpipe/lab/run_table.h: \"Each message has a tag of its own\"";
constexpr const char* kMessages = "docs/reference/messages.md; parallel/comm/communicator.h";

int ranks() { return varied("lab 3: ranks", 3, 5); }
int microbatches() { return varied("lab 3: micro-batches", 6, 9); }

// Placements.
std::vector<int> straight(int p) {
  std::vector<int> placement(static_cast<std::size_t>(p));
  std::iota(placement.begin(), placement.end(), 0);
  return placement;
}
std::vector<int> round_robin(int p) { return round_robin_placement(2 * p, p).stage_to_rank; }
std::vector<int> v_shaped(int p) { return v_placement(p).stage_to_rank; }

// The generator.

ScheduleCase case_of(const std::vector<int>& placement, int m) {
  const int p = 1 + *std::max_element(placement.begin(), placement.end());
  return {.ranks = p,
          .microbatches = m,
          .stages_per_rank = static_cast<int>(placement.size()) / p,
          .more = fmt::format(", stages on ranks {}", fmt::join(placement, ", "))};
}

/// Returns the schedule of the answer, after a check that it is legal.
Schedule legal_schedule(const Answer& answer, const std::vector<int>& placement, int m) {
  const ScheduleCase made_for = case_of(placement, m);
  set_case(to_string(made_for));
  Schedule schedule = answer.descending_gpipe(placement, m);
  require_legal(schedule, made_for, kGenerator);
  if (schedule.stage_to_rank != placement) {
    throw Failed(fmt::format("stages on ranks {}", fmt::join(placement, ", ")),
                 fmt::format("{}", fmt::join(schedule.stage_to_rank, ", ")), kGenerator);
  }
  return schedule;
}

void is_legal(const Answer& answer) {
  for (const int p : {1, 2, ranks()}) {
    for (const int m : {1, 2, microbatches()}) {
      legal_schedule(answer, straight(p), m);
    }
  }
}

std::string placement_of(const Schedule& schedule) {
  return fmt::format(", with stages on ranks {}", fmt::join(schedule.stage_to_rank, ", "));
}

/// Throws Failed unless the forwards of `actions` are in ascending order of stages and then micro-batches, and come
/// before its backwards.
void require_ascending_forwards(const std::vector<Action>& actions, std::size_t rank, const Schedule& schedule) {
  const std::size_t half = actions.size() / 2;
  for (std::size_t i = 0; i < half; ++i) {
    const bool is_forward = actions[i].operation == Operation::forward;
    const bool ascends = i == 0 || std::pair(actions[i - 1].stage, actions[i - 1].microbatch) <
                                       std::pair(actions[i].stage, actions[i].microbatch);
    if (!is_forward || !ascends) {
      const std::string after = i == 0 ? "first" : "after " + to_string(actions[i - 1]);
      throw Failed(fmt::format("rank {} runs its forwards first, stage by stage and in ascending order{}", rank,
                               placement_of(schedule)),
                   fmt::format("{} {}", to_string(actions[i]), after), kGenerator, drawn(schedule));
    }
  }
}

void require_reverse_backwards(const std::vector<Action>& actions, std::size_t rank, const Schedule& schedule) {
  for (std::size_t i = actions.size() / 2; i < actions.size(); ++i) {
    Action expected = actions[actions.size() - 1 - i];
    expected.operation = Operation::backward;
    if (actions[i] != expected) {
      throw Failed(fmt::format("{} on rank {}: backwards in the reverse order of the forwards{}", to_string(expected),
                               rank, placement_of(schedule)),
                   to_string(actions[i]), kGenerator, drawn(schedule));
    }
  }
}

void forwards_come_first(const Answer& answer) {
  const Schedule schedule = legal_schedule(answer, straight(ranks()), microbatches());
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    require_ascending_forwards(schedule.ranks[rank], rank, schedule);
  }
}

void backwards_descend(const Answer& answer) {
  const Schedule schedule = legal_schedule(answer, straight(ranks()), microbatches());
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    require_reverse_backwards(schedule.ranks[rank], rank, schedule);
  }
}

void takes_several_stages(const Answer& answer) {
  for (const auto& placement : {round_robin(ranks()), v_shaped(ranks()), round_robin(2)}) {
    const Schedule schedule = legal_schedule(answer, placement, microbatches());
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      require_ascending_forwards(schedule.ranks[rank], rank, schedule);
      require_reverse_backwards(schedule.ranks[rank], rank, schedule);
    }
  }
}

/// GPipe's time does not depend on the order of the backwards.
void takes_the_time_of_the_formula(const Answer& answer) {
  for (const int p : {2, ranks()}) {
    for (const int m : {1, microbatches()}) {
      const Schedule schedule = legal_schedule(answer, straight(p), m);
      require_time(schedule, 3.0 * (m + p - 1), case_of(straight(p), m), "chapter 3, \"How much time is still lost?\"");
    }
  }
}

// The loop.

/// Called on each rank after each step.
using StepCheck = std::function<void(Communicator& comm)>;

RankStep step_of(const Answer& answer, const Schedule& schedule, const std::vector<std::int64_t>& sizes,
                 const StepCheck& check = {}) {
  return [&answer, &schedule, &sizes, check](const RankPart& part) {
    const double loss = answer.run_table({.comm = part.comm,
                                          .schedule = schedule,
                                          .stages = part.stages,
                                          .entering = part.entering,
                                          .sizes = sizes,
                                          .images = part.images,
                                          .labels = part.labels});
    if (check != nullptr) {
      check(part.comm);
    }
    return loss;
  };
}

std::vector<Message> train(const Answer& answer, const Schedule& schedule, const std::vector<std::int64_t>& sizes,
                           const std::string& look_at, int steps = 3, const StepCheck& check = {}) {
  return require_equal_to_one_device({schedule.stage_to_rank, sizes, steps}, step_of(answer, schedule, sizes, check),
                                     look_at);
}

std::vector<std::int64_t> equal_sizes(int m) { return std::vector<std::int64_t>(static_cast<std::size_t>(m), 4); }

void two_ranks_equal_one_device(const Answer& answer) {
  const int m = microbatches();
  train(answer, make_schedule("gpipe", 2, m), equal_sizes(m), kLoop);
  train(answer, make_schedule("gpipe", ranks(), m), equal_sizes(m), kLoop);
}

void uneven_sizes_weigh_right(const Answer& answer) {
  train(answer, make_schedule("gpipe", 2, 4), {5, 5, 5, 2},
        "chapter 3, \"The training loop\"; chapter 1, \"Micro-batches\"");
}

/// All forwards, then the backwards from the last micro-batch to the first.
Schedule with_descending_backwards(int p, int m) {
  Schedule schedule = make_schedule("gpipe", p, m);
  for (std::vector<Action>& actions : schedule.ranks) {
    std::reverse(actions.begin() + m, actions.end());
  }
  return schedule;
}

void descending_backwards_give_the_same_bytes(const Answer& answer) {
  const int m = microbatches();
  train(answer, with_descending_backwards(2, m), equal_sizes(m), kBytes);
}

Schedule table(const char* lines) { return schedule_from_text(lines, "a table of the grader"); }

/// Two stages on each rank, placed in a V: two of the borders between stages are inside a rank.
void several_stages_per_rank_run(const Answer& answer) {
  const int steps = 1;
  // Rank 1 passes a micro-batch on at once; then it passes on two, one after the other.
  for (const char* lines : {"0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1\n1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n",
                            "0F0,0F1,3F0,3F1,3B1,3B0,0B1,0B0\n1F0,1F1,2F0,2F1,2B1,2B0,1B1,1B0\n"}) {
    const std::vector<Message> messages = train(answer, table(lines), equal_sizes(2), kLoop, steps);
    constexpr std::size_t kExpected = 8;  // two borders, two micro-batches, forward and backward
    if (messages.size() != kExpected) {
      throw Failed(fmt::format("{} messages in a step: none between stages of one rank", kExpected),
                   std::to_string(messages.size()), kLoop);
    }
  }
}

/// Two stages on each of two ranks, placed round-robin: all borders between stages are between ranks.
Schedule round_robin_table() { return table("0F0,0F1,2F0,2F1,2B1,2B0,0B1,0B0\n1F0,1F1,3F0,3F1,3B1,3B0,1B1,1B0\n"); }

/// In 1F1B, adjacent ranks send an activation and a gradient to each other at once; with stages placed round-robin,
/// two activations, and two gradients.
void sends_do_not_wait(const Answer& answer) {
  const int m = microbatches();
  constexpr int kSteps = 3;
  const auto waited_for = [](Communicator& comm) {
    require_sends_waited_for(comm, "chapters/03_gpipe/lab/run_table.h");
  };
  train(answer, make_schedule("1f1b", ranks(), m), equal_sizes(m), kMessages, kSteps, waited_for);
  train(answer, round_robin_table(), equal_sizes(2), kMessages, kSteps, waited_for);
}

/// Throws Failed if two messages of a step from a rank to another one have the same tag.
void require_own_tags(const Answer& answer, const Schedule& schedule, const std::vector<std::int64_t>& sizes,
                      const char* why) {
  constexpr int kSteps = 1;
  const std::vector<Message> messages =
      messages_of({schedule.stage_to_rank, sizes, kSteps}, step_of(answer, schedule, sizes), kTags);
  std::map<std::tuple<int, int, int>, int> counts;  // by from, to and tag
  for (const Message& message : messages) {
    ++counts[{message.from, message.to, message.tag}];
  }
  for (const auto& [address, count] : counts) {
    if (count > 1) {
      const auto [from, to, tag] = address;
      throw Failed(fmt::format("each message from rank {} to rank {} has a tag of its own", from, to),
                   fmt::format("{} messages of a step have tag {}: {}", count, tag, why), kTags);
    }
  }
}

void ranks_may_take_another_order(const Answer& answer) {
  const Schedule schedule = table("0F0,0F1,0F2,0B0,0B1,0B2\n1F2,1F0,1F1,1B0,1B1,1B2\n");
  const std::vector<std::int64_t> sizes{3, 3, 3};
  require_own_tags(answer, schedule, sizes,
                   "rank 0 begins with micro-batch 0, rank 1 with micro-batch 2, and takes one for the other");
  train(answer, schedule, sizes, kTags);
  require_own_tags(answer, round_robin_table(), {3, 3}, "what enters stage 1 and what enters stage 3 are two messages");
}

}  // namespace

std::vector<Criterion> criteria(const Answer& answer) {
  const char* const kSends = "sends do not wait, and are waited for in the end";
  const auto with = [&answer](void (*check)(const Answer&)) { return [answer, check] { check(answer); }; };
  return {
      {"the generator's table is legal, with one stage per rank", 15, with(is_legal), kGenerator},
      {"each rank runs all forwards first, in ascending order", 10, with(forwards_come_first), kGenerator},
      {"the backwards run in the reverse order", 10, with(backwards_descend), kGenerator},
      {"one rank may hold several stages", 10, with(takes_several_stages), kGenerator},
      {"a step takes the time of the formula", 5, with(takes_the_time_of_the_formula), kGenerator},
      {"the loop trains what one device trains", 15, with(two_ranks_equal_one_device), kLoop},
      {"a smaller last micro-batch weighs what it should", 10, with(uneven_sizes_weigh_right), kLoop},
      {"descending backwards give the same bytes", 10, with(descending_backwards_give_the_same_bytes), kLoop},
      {"the loop runs several stages per rank", 5, with(several_stages_per_rank_run), kLoop},
      {kSends, 5, with(sends_do_not_wait), kMessages},
      {"each message has a tag of its own", 5, with(ranks_may_take_another_order), kTags, {kSends}},
  };
}

}  // namespace stagecoach::labs::lab3
