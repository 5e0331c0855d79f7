#include "parallel/schedule/walk.h"

namespace stagecoach {

Walk::Walk(const Schedule& schedule)
    : schedule_(schedule),
      done_(static_cast<std::size_t>(schedule.stages) * static_cast<std::size_t>(schedule.microbatches)),
      next_(schedule.ranks.size()) {}

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
  }
  return std::nullopt;
}

int Walk::finish(const Action& action) {
  const auto [operation, stage, microbatch] = action;
  if (operation == Operation::backward_weight) {
    return -1;
  }
  const bool forward = operation == Operation::forward;
  done_[at(stage, microbatch)] |= forward ? kForward : kInputGradient;
  const int neighbour = forward ? stage + 1 : stage - 1;
  const bool exists = neighbour >= 0 && neighbour < schedule_.stages;
  return exists ? schedule_.holder[static_cast<std::size_t>(neighbour)] : -1;
}

}  // namespace stagecoach
