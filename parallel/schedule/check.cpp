#include "parallel/schedule/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/base/throw_if.h"
#include "parallel/schedule/dependency_replay.h"
#include "parallel/schedule/grid.h"
#include "parallel/schedule/lower.h"

namespace stagecoach {
namespace {

class Problems {
 public:
  bool full() const { return found_.size() >= kMaxProblems; }
  template <class... Arguments>
  void add(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    if (!full()) {
      found_.push_back(fmt::format(text, std::forward<Arguments>(arguments)...));
    }
  }
  bool any() const { return !found_.empty(); }
  std::vector<std::string> take() { return std::move(found_); }

 private:
  std::vector<std::string> found_;
};

void check_placement(const Schedule& s, Problems& problems) {
  if (s.stage_count() < 1 || s.microbatches < 1 || s.ranks.empty()) {
    problems.add("expected at least 1 stage, 1 micro-batch and 1 rank, got {}, {} and {}", s.stage_count(),
                 s.microbatches, s.ranks.size());
    return;
  }
  if (!s.replicas.empty() && s.replicas.size() != s.stage_to_rank.size()) {
    problems.add("expected one number of replicas per stage, got {} for {} stages", s.replicas.size(), s.stage_count());
    return;
  }
  for (int stage = 0; stage < s.stage_count() && !problems.full(); ++stage) {
    const int first = s.stage_to_rank[static_cast<std::size_t>(stage)];
    const int count = s.replicas_of(stage);
    if (first < 0 || count < 1 || count > s.rank_count() - first) {
      problems.add("stage {} is not assigned to a rank", stage);
    }
  }
}

/// Returns whether the stage and micro-batch of `action` exist and the stage is on `rank`; if not, adds a problem.
bool is_in_range(const Schedule& s, const Action& action, int rank, Problems& problems) {
  if (action.stage < 0 || action.stage >= s.stage_count() || action.microbatch < 0 ||
      action.microbatch >= s.microbatches) {
    problems.add("rank {}: {} is out of range for {} stages and {} micro-batches", rank, to_string(action),
                 s.stage_count(), s.microbatches);
    return false;
  }
  const int owner = s.rank_of(action);
  if (owner != rank) {
    problems.add("rank {}: {} belongs to rank {}, to which stage {} is assigned", rank, to_string(action), owner,
                 action.stage);
    return false;
  }
  return true;
}

/// Returns whether the schedule's computations need `action`. They need a message only if another rank is at its other
/// end.
bool is_needed(const Schedule& s, const Action& action) {
  if (!is_message(action.operation)) {
    return true;
  }
  const Action other = other_end(action);
  return other.stage >= 0 && other.stage < s.stage_count() && s.rank_of(other) != s.rank_of(action);
}

/// Returns which operations are listed for each stage and micro-batch, as bits. Checks that those for which
/// `is_checked` holds are on their own rank, are needed, and are not listed twice.
template <class IsChecked>
Grid<unsigned> listed_operations(const Schedule& s, const IsChecked& is_checked, Problems& problems) {
  Grid<unsigned> listed(s.stage_count(), s.microbatches);
  for_each_action(s, [&](std::size_t r, std::size_t, const Action& action) {
    const int rank = static_cast<int>(r);
    if (problems.full() || !is_checked(action.operation) || !is_in_range(s, action, rank, problems)) {
      return;
    }
    unsigned& bits = listed.at(action.stage, action.microbatch);
    if (!is_needed(s, action)) {
      problems.add("rank {}: {} has no other rank at the other end", rank, to_string(action));
    } else if ((bits & bit_of(action.operation)) != 0) {
      problems.add("rank {}: {} is listed twice", rank, to_string(action));
    }
    bits |= bit_of(action.operation);
  });
  return listed;
}

/// Checks that each stage runs each micro-batch forward once and backward once.
void check_computations(const Schedule& s, Problems& problems) {
  constexpr unsigned kB = bit_of(Operation::backward);
  constexpr unsigned kI = bit_of(Operation::backward_input);
  constexpr unsigned kW = bit_of(Operation::backward_weight);
  const Grid<unsigned> listed = listed_operations(s, is_computation, problems);
  bool splits = false;  // whether the table has backwards in two parts
  for_each_action(s, [&](std::size_t, std::size_t, const Action& action) {
    splits = splits || action.operation == Operation::backward_input || action.operation == Operation::backward_weight;
  });
  for (int stage = 0; stage < s.stage_count(); ++stage) {
    for (int i = 0; i < s.microbatches && !problems.full(); ++i) {
      if ((listed.at(stage, i) & bit_of(Operation::forward)) == 0) {
        problems.add("{} is missing", to_string({Operation::forward, stage, i}));
      }
      const unsigned backward = listed.at(stage, i) & (kB | kI | kW);
      if (backward == 0) {
        problems.add("{} is missing{}", to_string({Operation::backward, stage, i}),
                     splits ? fmt::format(" (or {} and {})", to_string({Operation::backward_input, stage, i}),
                                          to_string({Operation::backward_weight, stage, i}))
                            : "");
      } else if (backward == kI || backward == kW) {
        problems.add("{} is missing",
                     to_string({backward == kI ? Operation::backward_weight : Operation::backward_input, stage, i}));
      } else if (backward != kB && backward != (kI | kW)) {
        problems.add("stage {} runs micro-batch {} backward more than once: B contains both I and W", stage, i);
      }
    }
  }
}

bool is_backward(Operation operation) {
  return gives_input_gradient(operation) || operation == Operation::backward_weight;
}

/// Checks that each rank updates its stages after all backwards for an update and before any for the next; if no
/// updates should be listed, that there are none.
void check_updates(const Schedule& s, Problems& problems) {
  for (int rank = 0; rank < s.rank_count() && !problems.full(); ++rank) {
    std::vector<int> updates(static_cast<std::size_t>(s.stage_count()));  // so far
    for (const Action& action : s.ranks[static_cast<std::size_t>(rank)]) {
      const bool known = action.stage >= 0 && action.stage < s.stage_count() && s.holds(rank, action.stage);
      if (action.operation == Operation::update && (!known || s.batch == 0)) {
        problems.add("rank {}: {} {}", rank, to_string(action),
                     s.batch == 0 ? "is in a schedule of a single step, which runs its update after the schedule"
                                  : "belongs to another rank");
      } else if (action.operation == Operation::update) {
        int& next = updates[static_cast<std::size_t>(action.stage)];
        if (action.microbatch != next || next == s.updates(action.stage)) {
          problems.add("rank {}: {} comes after {} of {} updates", rank, to_string(action), next,
                       s.updates(action.stage));
        }
        ++next;
      } else if (known && s.batch > 0 && is_backward(action.operation) &&
                 action.microbatch / s.microbatches_per_update(action.stage) !=
                     updates[static_cast<std::size_t>(action.stage)]) {
        problems.add("rank {}: {} belongs to update {}, but comes after {} updates", rank, to_string(action),
                     action.microbatch / s.microbatches_per_update(action.stage),
                     updates[static_cast<std::size_t>(action.stage)]);
      }
    }
    for (int stage = 0; stage < s.stage_count() && s.batch > 0; ++stage) {
      if (s.holds(rank, stage) && updates[static_cast<std::size_t>(stage)] < s.updates(stage)) {
        problems.add("rank {}: {} is missing", rank,
                     to_string({Operation::update, stage, updates[static_cast<std::size_t>(stage)]}));
      }
    }
  }
}

/// Checks that each message that the computations need is sent once and received once.
void check_messages(const Schedule& s, Problems& problems) {
  const Grid<unsigned> listed = listed_operations(s, is_message, problems);
  for (int stage = 0; stage < s.stage_count(); ++stage) {
    for (int i = 0; i < s.microbatches && !problems.full(); ++i) {
      for (const Operation operation : {Operation::send_forward, Operation::receive_forward, Operation::send_backward,
                                        Operation::receive_backward}) {
        if ((listed.at(stage, i) & bit_of(operation)) == 0 && is_needed(s, {operation, stage, i})) {
          problems.add("{} is missing", to_string({operation, stage, i}));
        }
      }
    }
  }
}

/// Checks that the messages from one rank to another are received in the order in which they are sent. Otherwise
/// transports without tags would match the wrong sends and receives.
void check_order(const Schedule& s, Problems& problems) {
  // For each sender and receiver: the receives in the order of their sends, and in the order in which they are posted.
  std::map<std::pair<int, int>, std::vector<Action>> all_sent;
  std::map<std::pair<int, int>, std::vector<Action>> all_posted;
  for_each_action(s, [&](std::size_t r, std::size_t, const Action& action) {
    const int rank = static_cast<int>(r);
    if (is_send(action.operation)) {
      const Action receive = receive_of(action);
      all_sent[{rank, s.rank_of(receive)}].push_back(receive);
    } else if (is_receive(action.operation)) {
      all_posted[{s.rank_of(send_of(action)), rank}].push_back(action);
    }
  });
  for (const auto& [ranks, sent] : all_sent) {
    const auto& posted = all_posted.at(ranks);
    const auto [sends, receives] = std::mismatch(sent.begin(), sent.end(), posted.begin());
    if (sends != sent.end() && !problems.full()) {
      problems.add(
          "rank {} posts {} where rank {} sends {}: a rank must post its receives from another rank in the order of "
          "that rank's sends",
          ranks.second, to_string(*receives), ranks.first, to_string(send_of(*sends)));
    }
  }
}

/// Checks that a rank sums a stage's gradients at most once per step or, if updates are listed, once before each
/// update.
void check_reductions(const Schedule& s, Problems& problems) {
  for (int rank = 0; rank < s.rank_count() && !problems.full(); ++rank) {
    std::map<int, int> reductions;  // per stage, so far
    for (const Action& action : s.ranks[static_cast<std::size_t>(rank)]) {
      if (action.operation == Operation::reduce_grad) {
        const bool is_of_rank = action.stage >= 0 && action.stage < s.stage_count() && s.holds(rank, action.stage);
        const int next = s.batch > 0 ? reductions[action.stage] : Action::kAllMicrobatches;
        if (!is_of_rank) {
          problems.add("rank {}: {} belongs to another rank", rank, to_string(action));
        } else if (action.microbatch != next || (s.batch == 0 && reductions[action.stage] > 0)) {
          problems.add("rank {}: {} comes after {} reductions of the same stage", rank, to_string(action),
                       reductions[action.stage]);
        }
        ++reductions[action.stage];
      } else if (action.operation == Operation::update && s.replicas_of(action.stage) > 1 &&
                 reductions[action.stage] != action.microbatch + 1) {
        problems.add("rank {}: {} comes before {}", rank, to_string(action),
                     to_string({Operation::reduce_grad, action.stage, action.microbatch}));
      }
    }
  }
}

/// Returns the computation whose result `action` sends; if `action` is not a send, `action` itself.
Action computation_of(const Action& action) {
  const Operation operation = action.operation == Operation::send_forward    ? Operation::forward
                              : action.operation == Operation::send_backward ? Operation::backward
                                                                             : action.operation;
  return {operation, action.stage, action.microbatch};
}

/// Returns the circle of waiting ranks, such as "rank 0 waits at 0B0 for 1SEND_B0 of rank 1": follows the waits from
/// `rank` on until a rank recurs. If messages are not listed, the text names 1B0 instead, as that is what the
/// user's table contains.
std::string circle_from(const Schedule& s, const DependencyReplay& replay, int rank, bool messages_are_listed) {
  std::vector<int> path;
  std::vector<std::string> words;
  while (std::find(path.begin(), path.end(), rank) == path.end()) {
    path.push_back(rank);
    const Action& stuck = s.ranks[static_cast<std::size_t>(rank)][replay.next(rank)];
    const Action missing = *replay.missing(stuck);
    const Action needed = messages_are_listed ? missing : computation_of(missing);
    const int owner = s.rank_of(needed.stage, std::max(needed.microbatch, 0));
    words.push_back(
        fmt::format("rank {} waits at {} for {} of {}", rank, to_string(stuck), to_string(needed),
                    owner == rank ? std::string("the same rank, which runs it later") : fmt::format("rank {}", owner)));
    rank = owner;
  }
  const auto first = std::find(path.begin(), path.end(), rank) - path.begin();
  words.erase(words.begin(), words.begin() + first);  // the path to the circle is not part of it
  return fmt::format("{}", fmt::join(words, "; "));
}

/// Returns the first rank that never reaches the end of its list; nothing if all ranks do.
std::optional<int> first_stuck(const Schedule& s, DependencyReplay& replay) {
  replay.run([](int, const Action&) {});
  for (int rank = 0; rank < s.rank_count(); ++rank) {
    if (!replay.is_done(rank)) {
      return rank;
    }
  }
  return std::nullopt;
}

void check_deadlock(const Schedule& s, bool messages_are_listed, Problems& problems) {
  DependencyReplay replay(s);
  const auto stuck = first_stuck(s, replay);
  if (!stuck) {
    return;
  }
  DependencyReplay without_waits(s, false);
  const bool only_sends = s.sends_wait && !first_stuck(s, without_waits);
  problems.add("{}: {}", only_sends ? "deadlock, because sends wait for their receivers" : "deadlock",
               circle_from(s, replay, *stuck, messages_are_listed));
}

}  // namespace

std::vector<std::string> check(const Schedule& schedule) {
  Problems problems;
  check_placement(schedule, problems);
  if (!problems.any()) {
    check_computations(schedule, problems);
    check_updates(schedule, problems);
  }
  if (problems.any()) {
    return problems.take();
  }
  if (!schedule.is_lowered) {
    check_deadlock(lower(schedule), false, problems);
    return problems.take();
  }
  check_messages(schedule, problems);
  check_reductions(schedule, problems);
  if (!problems.any()) {
    check_order(schedule, problems);
  }
  if (!problems.any()) {
    check_deadlock(schedule, true, problems);
  }
  return problems.take();
}

void require_legal(const Schedule& schedule, const std::string& name) {
  const auto problems = check(schedule);
  throw_if<UsageError>(!problems.empty(), "schedule {} cannot run: {}{}", name, fmt::join(problems, "; "),
                       problems.size() == kMaxProblems ? "; there may be more problems" : "");
}

}  // namespace stagecoach
