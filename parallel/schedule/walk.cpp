#include "parallel/schedule/walk.h"

#include <algorithm>

namespace stagecoach {

Walk::Walk(const Schedule& schedule)
    : schedule_(schedule),
      done_(static_cast<std::size_t>(schedule.stages) * static_cast<std::size_t>(schedule.microbatches)),
      next_(schedule.ranks.size()),
      updates_(schedule.ranks.size()) {}

std::optional<Action> Walk::missing(const Action& action) const {
  const auto [operation, stage, microbatch] = action;
  switch (operation) {
    case Operation::forward:
      if (stage > 0 && !has(stage - 1, microbatch, kForward)) {
        return Action{Operation::forward, stage - 1, microbatch};
      }
      return std::nullopt;
    case Operation::backward:
    case Operation::backward_input:
      if (!has(stage, microbatch, kForward)) {
        return Action{Operation::forward, stage, microbatch};
      }
      if (stage + 1 < schedule_.stages && !has(stage + 1, microbatch, kInputGradient)) {
        return Action{Operation::backward, stage + 1, microbatch};
      }
      return std::nullopt;
    case Operation::backward_weight:
      if (!has(stage, microbatch, kInputGradient)) {
        return Action{Operation::backward_input, stage, microbatch};
      }
      return std::nullopt;
    case Operation::update:
      if (const auto gradient = gradient_missing(stage, microbatch)) {
        return gradient;
      }
      return replica_missing(action);
  }
  return std::nullopt;
}

/// Of the micro-batches whose gradients update number `update` of `stage` uses.
std::optional<Action> Walk::gradient_missing(int stage, int update) const {
  const int unit = schedule_.unit(stage);
  for (int i = update * unit; i < std::min((update + 1) * unit, schedule_.microbatches); ++i) {
    if (!has(stage, i, kWeightGradient)) {
      return Action{Operation::backward, stage, i};
    }
  }
  return std::nullopt;
}

/// Replicas meet in an update: what one of them does before it has come there.
std::optional<Action> Walk::replica_missing(const Action& update) const {
  for (int replica = 0; replica < schedule_.replicas_of(update.stage); ++replica) {
    const auto rank = static_cast<std::size_t>(schedule_.rank_of(update.stage, replica));
    const auto& actions = schedule_.ranks[rank];
    const bool is_past = updates_[rank] > update.microbatch;
    if (!is_past && next_[rank] < actions.size() && actions[next_[rank]] != update) {
      return actions[next_[rank]];
    }
  }
  return std::nullopt;
}

void Walk::finish(const Action& action, int rank) {
  const auto [operation, stage, microbatch] = action;
  constexpr unsigned kDone[kOperations] = {kForward, kInputGradient | kWeightGradient, kInputGradient, kWeightGradient,
                                           0};
  if (operation == Operation::update) {
    ++updates_[static_cast<std::size_t>(rank)];
  } else {
    done_[at(stage, microbatch)] |= static_cast<std::uint8_t>(kDone[static_cast<std::size_t>(operation)]);
  }
}

void Walk::wake(const Action& action, int rank, std::vector<int>& open) const {
  const auto [operation, stage, microbatch] = action;
  const auto wake_rank = [&](int other) {
    if (other != rank) {
      open.push_back(other);
    }
  };
  if (operation != Operation::backward_weight && operation != Operation::update) {
    const int neighbour = operation == Operation::forward ? stage + 1 : stage - 1;
    if (neighbour >= 0 && neighbour < schedule_.stages) {
      wake_rank(schedule_.rank_of(neighbour, microbatch));
    }
  }
  if (operation != Operation::forward) {  // the other replicas may wait with their updates
    for (int replica = 0; replica < schedule_.replicas_of(stage) && schedule_.batch > 0; ++replica) {
      wake_rank(schedule_.rank_of(stage, replica));
    }
  }
}

}  // namespace stagecoach
