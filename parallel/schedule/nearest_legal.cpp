#include "parallel/schedule/nearest_legal.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "parallel/schedule/grid.h"

namespace stagecoach {
namespace {

/// The operations of each stage and micro-batch, as bits; B counts as I and W.
class OperationBits {
 public:
  explicit OperationBits(const Schedule& schedule)
      : stages_(schedule.stage_count()), bits_(schedule.stage_count(), schedule.microbatches) {}

  static unsigned of(Operation operation) { return operation == Operation::backward ? kBackward : bit_of(operation); }
  bool has_any(const Action& action) const {
    return (bits_.at(action.stage, action.microbatch) & of(action.operation)) != 0;
  }
  unsigned missing(int stage, int microbatch) const { return kAll & ~bits_.at(stage, microbatch); }
  void add(const Action& action) { bits_.at(action.stage, action.microbatch) |= of(action.operation); }

  /// Returns whether what `action` needs is there.
  bool allows(const Action& action) const {
    const auto [operation, stage, microbatch] = action;
    const auto has = [&, m = microbatch](int s, Operation needed) { return (bits_.at(s, m) & bit_of(needed)) != 0; };
    if (operation == Operation::forward) {
      return stage == 0 || has(stage - 1, Operation::forward);
    }
    if (operation == Operation::backward_weight) {
      return has(stage, Operation::backward_input);
    }
    return has(stage, Operation::forward) && (stage + 1 == stages_ || has(stage + 1, Operation::backward_input));
  }

  static constexpr unsigned kBackward = bit_of(Operation::backward_input) | bit_of(Operation::backward_weight);
  static constexpr unsigned kAll = bit_of(Operation::forward) | kBackward;

 private:
  int stages_;
  Grid<unsigned> bits_;
};

/// Appends what `missing` says that a stage lacks for a micro-batch.
void append_missing(std::vector<Action>& actions, unsigned missing, int stage, int microbatch) {
  const auto append = [&](Operation operation) { actions.push_back({operation, stage, microbatch}); };
  if ((missing & bit_of(Operation::forward)) != 0) {
    append(Operation::forward);
  }
  if ((missing & OperationBits::kBackward) == OperationBits::kBackward) {
    append(Operation::backward);
    return;
  }
  for (const Operation half : {Operation::backward_input, Operation::backward_weight}) {
    if ((missing & bit_of(half)) != 0) {
      append(half);
    }
  }
}

/// Lists every computation once.
Schedule completed(Schedule schedule) {
  OperationBits listed(schedule);
  for (auto& actions : schedule.ranks) {
    std::erase_if(actions, [&](const Action& action) {
      const bool is_again = listed.has_any(action);
      listed.add(action);
      return is_again;
    });
  }
  for (int stage = 0; stage < schedule.stage_count(); ++stage) {
    auto& actions = schedule.ranks[static_cast<std::size_t>(schedule.rank_of(stage, 0))];
    for (int microbatch = 0; microbatch < schedule.microbatches; ++microbatch) {
      append_missing(actions, listed.missing(stage, microbatch), stage, microbatch);
    }
  }
  return schedule;
}

struct Place {
  std::size_t rank = 0;
  std::size_t index = 0;
  std::size_t distance = 0;  // from the front of what is left
};

/// Returns the action that can run and is nearest to the front of its list, of which the first `next` are done.
std::optional<Place> nearest_that_can_run(const Schedule& schedule, const std::vector<std::size_t>& next,
                                          const OperationBits& done) {
  std::optional<Place> nearest;
  for (std::size_t rank = 0; rank < next.size(); ++rank) {
    const auto& actions = schedule.ranks[rank];
    for (std::size_t i = next[rank]; i < actions.size() && (!nearest || i - next[rank] < nearest->distance); ++i) {
      if (done.allows(actions[i])) {
        nearest = Place{rank, i, i - next[rank]};
      }
    }
  }
  return nearest;
}

}  // namespace

Schedule nearest_legal(const Schedule& computations) {
  Schedule schedule = completed(computations);
  OperationBits done(schedule);
  std::vector<std::size_t> next(schedule.ranks.size(), 0);
  while (const auto place = nearest_that_can_run(schedule, next, done)) {
    auto& actions = schedule.ranks[place->rank];
    const auto front = actions.begin() + static_cast<std::ptrdiff_t>(next[place->rank]++);
    const auto chosen = actions.begin() + static_cast<std::ptrdiff_t>(place->index);
    done.add(*chosen);
    std::rotate(front, chosen, chosen + 1);
  }
  return schedule;
}

}  // namespace stagecoach
