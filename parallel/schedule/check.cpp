#include "parallel/schedule/check.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "parallel/schedule/walk.h"

namespace stagecoach {
namespace {

class Problems {
 public:
  bool full() const { return found_.size() >= kMostProblems; }
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

void check_holders(const Schedule& s, Problems& problems) {
  if (s.stages < 1 || s.microbatches < 1 || s.ranks.empty() || s.holder.size() != static_cast<std::size_t>(s.stages)) {
    problems.add("{} stages ({} of them dealt to ranks), {} micro-batches, {} ranks: each is at least 1", s.stages,
                 s.holder.size(), s.microbatches, s.ranks.size());
    return;
  }
  if (!s.replicas.empty() && s.replicas.size() != s.holder.size()) {
    problems.add("replicas of {} stages for {}", s.replicas.size(), s.stages);
    return;
  }
  for (int stage = 0; stage < s.stages && !problems.full(); ++stage) {
    const int first = s.holder[static_cast<std::size_t>(stage)];
    const int count = s.replicas_of(stage);
    if (first < 0 || count < 1 || count > s.rank_count() - first) {
      problems.add("stage {} is on no rank", stage);
    }
  }
}

/// That every action is one of the schedule's, on its rank; and how often it is there.
void check_actions(const Schedule& s, Problems& problems) {
  // For each stage and micro-batch a bit an operation.
  std::vector<std::uint8_t> seen(static_cast<std::size_t>(s.stages) * static_cast<std::size_t>(s.microbatches));
  for (int rank = 0; rank < s.rank_count() && !problems.full(); ++rank) {
    for (const Action& action : s.ranks[static_cast<std::size_t>(rank)]) {
      if (action.operation == Operation::update) {
        continue;
      }
      if (action.stage < 0 || action.stage >= s.stages || action.microbatch < 0 ||
          action.microbatch >= s.microbatches) {
        problems.add("rank {}: {} is outside of {} stages and {} micro-batches", rank, to_string(action), s.stages,
                     s.microbatches);
        continue;
      }
      const int holder = s.rank_of(action.stage, action.microbatch);
      if (holder != rank) {
        problems.add("rank {}: {} belongs to rank {}, which holds stage {}", rank, to_string(action), holder,
                     action.stage);
        continue;
      }
      std::uint8_t& bits = seen[static_cast<std::size_t>(action.stage) * static_cast<std::size_t>(s.microbatches) +
                                static_cast<std::size_t>(action.microbatch)];
      const auto bit = static_cast<std::uint8_t>(1U << static_cast<unsigned>(action.operation));
      if ((bits & bit) != 0) {
        problems.add("rank {}: {} is there twice", rank, to_string(action));
      }
      bits |= bit;
    }
  }
  for (int stage = 0; stage < s.stages; ++stage) {
    for (int i = 0; i < s.microbatches && !problems.full(); ++i) {
      const unsigned bits = seen[static_cast<std::size_t>(stage) * static_cast<std::size_t>(s.microbatches) +
                                 static_cast<std::size_t>(i)];
      constexpr unsigned kF = 1, kB = 2, kI = 4, kW = 8;
      if ((bits & kF) == 0) {
        problems.add("{} is missing", to_string({Operation::forward, stage, i}));
      }
      const unsigned backward = bits & (kB | kI | kW);
      if (backward == 0) {
        problems.add("{} is missing (or {} and {})", to_string({Operation::backward, stage, i}),
                     to_string({Operation::backward_input, stage, i}),
                     to_string({Operation::backward_weight, stage, i}));
      } else if (backward == kI || backward == kW) {
        problems.add("{} is missing",
                     to_string({backward == kI ? Operation::backward_weight : Operation::backward_input, stage, i}));
      } else if (backward != kB && backward != (kI | kW)) {
        problems.add("stage {} runs micro-batch {} backward more than once: B is I and W together", stage, i);
      }
    }
  }
}

/// That each rank updates its stages when it has run all backwards for it and none for the next: where no updates are
/// listed, that there are none.
void check_updates(const Schedule& s, Problems& problems) {
  for (int rank = 0; rank < s.rank_count() && !problems.full(); ++rank) {
    std::vector<int> updates(static_cast<std::size_t>(s.stages));  // so far
    for (const Action& action : s.ranks[static_cast<std::size_t>(rank)]) {
      const bool known = action.stage >= 0 && action.stage < s.stages && s.holds(rank, action.stage);
      if (action.operation == Operation::update && (!known || s.batch == 0)) {
        problems.add("rank {}: {} {}", rank, to_string(action),
                     s.batch == 0 ? "in a schedule of one step, which is updated after it" : "is of another rank");
      } else if (action.operation == Operation::update) {
        int& next = updates[static_cast<std::size_t>(action.stage)];
        if (action.microbatch != next || next == s.updates(action.stage)) {
          problems.add("rank {}: {} comes where {} of {} updates are done", rank, to_string(action), next,
                       s.updates(action.stage));
        }
        ++next;
      } else if (known && s.batch > 0 && action.operation != Operation::forward &&
                 action.microbatch / s.unit(action.stage) != updates[static_cast<std::size_t>(action.stage)]) {
        problems.add("rank {}: {} belongs to update {}, and {} are done", rank, to_string(action),
                     action.microbatch / s.unit(action.stage), updates[static_cast<std::size_t>(action.stage)]);
      }
    }
    for (int stage = 0; stage < s.stages && s.batch > 0; ++stage) {
      if (s.holds(rank, stage) && updates[static_cast<std::size_t>(stage)] < s.updates(stage)) {
        problems.add("rank {}: {} is missing", rank,
                     to_string({Operation::update, stage, updates[static_cast<std::size_t>(stage)]}));
      }
    }
  }
}

/// "rank 0 waits at 0B0 for 1B0, which rank 1 runs later": from `rank` on, until a rank comes again.
void explain_circle(const Schedule& s, const Walk& walk, int rank, Problems& problems) {
  std::vector<int> path;
  std::vector<std::string> words;
  while (std::find(path.begin(), path.end(), rank) == path.end()) {
    path.push_back(rank);
    const Action& stuck = s.ranks[static_cast<std::size_t>(rank)][walk.next(rank)];
    const Action needed = *walk.missing(stuck);
    const int holder = s.rank_of(needed.stage, needed.microbatch);
    words.push_back(
        fmt::format("rank {} waits at {} for {} of {}", rank, to_string(stuck), to_string(needed),
                    holder == rank ? std::string("its own, which it runs later") : fmt::format("rank {}", holder)));
    rank = holder;
  }
  const auto first = std::find(path.begin(), path.end(), rank) - path.begin();
  words.erase(words.begin(), words.begin() + first);  // what leads to the circle is not part of it
  problems.add("a circle that never ends: {}", fmt::join(words, "; "));
}

}  // namespace

std::vector<std::string> check(const Schedule& schedule) {
  Problems problems;
  check_holders(schedule, problems);
  if (!problems.any()) {
    check_actions(schedule, problems);
    check_updates(schedule, problems);
  }
  if (!problems.any()) {
    Walk walk(schedule);
    walk.run([](int, const Action&) {});
    for (int rank = 0; rank < schedule.rank_count(); ++rank) {
      if (!walk.is_done(rank)) {
        explain_circle(schedule, walk, rank, problems);
        break;
      }
    }
  }
  return problems.take();
}

void require_legal(const Schedule& schedule, const std::string& name) {
  if (const auto problems = check(schedule); !problems.empty()) {
    throw UsageError(fmt::format("schedule {} cannot run: {}{}", name, fmt::join(problems, "; "),
                                 problems.size() == kMostProblems ? "; and perhaps more" : ""));
  }
}

}  // namespace stagecoach
