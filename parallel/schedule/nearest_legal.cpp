#include "parallel/schedule/nearest_legal.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

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

std::size_t count_actions(const Schedule& schedule) {
  return std::accumulate(schedule.ranks.begin(), schedule.ranks.end(), std::size_t{0},
                         [](std::size_t sum, const std::vector<Action>& actions) { return sum + actions.size(); });
}

/// A move of one action of a rank to another place in its list.
struct Move {
  std::size_t rank = 0;
  std::size_t from = 0;
  std::size_t to = 0;

  std::size_t distance() const { return from > to ? from - to : to - from; }
};

void make(const Move& move, std::vector<Action>& actions) {
  const auto at = [&](std::size_t i) { return actions.begin() + static_cast<std::ptrdiff_t>(i); };
  if (move.from > move.to) {
    std::rotate(at(move.to), at(move.from), at(move.from) + 1);
  } else {
    std::rotate(at(move.from), at(move.from) + 1, at(move.to) + 1);
  }
}

/// How far a schedule runs: what is done, and of each rank how many actions.
struct PartialRun {
  OperationBits done;
  std::vector<std::size_t> next;

  /// Runs until all ranks wait or have ended.
  void run(const Schedule& schedule) {
    for (bool moves = true; moves;) {
      moves = false;
      for (std::size_t rank = 0; rank < next.size(); ++rank) {
        const auto& actions = schedule.ranks[rank];
        for (; next[rank] < actions.size() && done.allows(actions[next[rank]]); ++next[rank]) {
          done.add(actions[next[rank]]);
          moves = true;
        }
      }
    }
  }
  std::size_t count() const { return std::accumulate(next.begin(), next.end(), std::size_t{0}); }
};

/// Returns the moves of one action after which at least one more action can run, the shortest first: one that can run
/// to the front of what is left of its rank, or the front to any place behind one that can.
std::vector<Move> helpful_moves(const Schedule& schedule, const PartialRun& stuck) {
  std::vector<Move> moves;
  for (std::size_t rank = 0; rank < stuck.next.size(); ++rank) {
    const auto& actions = schedule.ranks[rank];
    const std::size_t front = stuck.next[rank];
    for (std::size_t i = front + 1; i < actions.size(); ++i) {
      if (stuck.done.allows(actions[i])) {
        moves.push_back({rank, i, front});
      }
      if (stuck.done.allows(actions[front + 1])) {
        moves.push_back({rank, front, i});
      }
    }
  }
  std::stable_sort(moves.begin(), moves.end(),
                   [](const Move& a, const Move& b) { return a.distance() < b.distance(); });
  return moves;
}

/// Returns the move after which the most actions run; of such moves the shortest. `moves` are not empty. Each that is
/// tried takes as many of `steps` as there are actions; once these are used up, only the shortest move is tried.
Move best_of(const std::vector<Move>& moves, const Schedule& schedule, const PartialRun& stuck, std::size_t& steps) {
  const std::size_t actions = count_actions(schedule);
  Move best = moves[0];
  std::size_t most = 0;
  for (const Move& move : moves) {
    if (steps < actions || most == actions) {
      break;
    }
    steps -= actions;
    Schedule changed = schedule;
    make(move, changed.ranks[move.rank]);
    PartialRun part = stuck;
    part.run(changed);
    if (part.count() > most) {
      most = part.count();
      best = move;
    }
  }
  return best;
}

}  // namespace

Schedule nearest_legal(const Schedule& computations) {
  Schedule schedule = completed(computations);
  PartialRun part{OperationBits(schedule), std::vector<std::size_t>(schedule.ranks.size(), 0)};
  std::size_t steps = 5'000'000;  // a fraction of a second
  for (;;) {
    part.run(schedule);
    const std::vector<Move> moves = helpful_moves(schedule, part);
    if (moves.empty()) {
      return schedule;
    }
    const Move move = best_of(moves, schedule, part, steps);
    make(move, schedule.ranks[move.rank]);
  }
}

}  // namespace stagecoach
