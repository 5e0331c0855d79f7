#include "parallel/schedule/dependency_replay.h"

#include <algorithm>

#include "core/error.h"
#include "parallel/schedule/lower.h"

namespace stagecoach {

DependencyReplay::DependencyReplay(const Schedule& schedule, bool sends_wait)
    : schedule_(schedule),
      sends_wait_(sends_wait),
      done_(schedule.stage_count(), schedule.microbatches),
      next_(schedule.ranks.size()),
      reductions_(schedule.ranks.size()) {
  STAGECOACH_CHECK(schedule.is_lowered,
                   "expected a lowered schedule, got one without communication; call lower() first");
}

std::optional<Action> DependencyReplay::missing(const Action& action) const {
  const auto [operation, stage, microbatch] = action;
  switch (operation) {
    case Operation::forward:
      return input_missing(action);
    case Operation::backward:
    case Operation::backward_input:
      return has(stage, microbatch, kForward) ? input_missing(action) : Action{Operation::forward, stage, microbatch};
    case Operation::backward_weight:
      if (!has(stage, microbatch, kInputGradient)) {
        return Action{Operation::backward_input, stage, microbatch};
      }
      return std::nullopt;
    case Operation::send_forward:
      if (!has(stage, microbatch, kForward)) {
        return Action{Operation::forward, stage, microbatch};
      }
      if (sends_wait_ && !has(stage + 1, microbatch, kPostedForward)) {
        return receive_of(action);
      }
      return std::nullopt;
    case Operation::send_backward:
      if (!has(stage, microbatch, kInputGradient)) {
        return Action{Operation::backward, stage, microbatch};
      }
      if (sends_wait_ && !has(stage - 1, microbatch, kPostedBackward)) {
        return receive_of(action);
      }
      return std::nullopt;
    case Operation::receive_forward:
    case Operation::receive_backward:
      return std::nullopt;
    case Operation::reduce_grad:
      if (const auto gradient = gradient_missing(action)) {
        return gradient;
      }
      return schedule_.batch > 0 ? replica_missing(action) : std::nullopt;
    case Operation::update:
      return gradient_missing(action);
  }
  return std::nullopt;
}

/// Returns what is missing for the input of a forward or the output gradient of a backward: the computation that makes
/// it if that is on the same rank, otherwise first the receive, then the send. Returns nothing if it has arrived.
std::optional<Action> DependencyReplay::input_missing(const Action& computation) const {
  const auto [operation, stage, microbatch] = computation;
  const bool goes_forward = operation == Operation::forward;
  const int from = goes_forward ? stage - 1 : stage + 1;
  if (from < 0 || from == schedule_.stage_count()) {
    return std::nullopt;
  }
  if (schedule_.rank_of(from, microbatch) == schedule_.rank_of(stage, microbatch)) {
    if (!has(from, microbatch, goes_forward ? kForward : kInputGradient)) {
      return Action{goes_forward ? Operation::forward : Operation::backward, from, microbatch};
    }
    return std::nullopt;
  }
  if (!has(stage, microbatch, goes_forward ? kPostedForward : kPostedBackward)) {
    return Action{goes_forward ? Operation::receive_forward : Operation::receive_backward, stage, microbatch};
  }
  if (!has(from, microbatch, goes_forward ? kSentForward : kSentBackward)) {
    return Action{goes_forward ? Operation::send_forward : Operation::send_backward, from, microbatch};
  }
  return std::nullopt;
}

/// Returns a backward that is missing among the micro-batches whose gradients a reduction sums or an update uses.
std::optional<Action> DependencyReplay::gradient_missing(const Action& reduction_or_update) const {
  const int stage = reduction_or_update.stage;
  const bool whole_step = schedule_.batch == 0;
  const int unit = whole_step ? schedule_.microbatches : schedule_.microbatches_per_update(stage);
  const int first = whole_step ? 0 : reduction_or_update.microbatch * unit;
  for (int i = first; i < std::min(first + unit, schedule_.microbatches); ++i) {
    if (!has(stage, i, kWeightGradient)) {
      return Action{Operation::backward, stage, i};
    }
  }
  return std::nullopt;
}

/// All replicas must reach a reduction. Returns the next action of a replica that has not.
std::optional<Action> DependencyReplay::replica_missing(const Action& reduction) const {
  for (int replica = 0; replica < schedule_.replicas_of(reduction.stage); ++replica) {
    const auto rank = static_cast<std::size_t>(schedule_.rank_of(reduction.stage, replica));
    const auto& actions = schedule_.ranks[rank];
    const bool is_past = reductions_[rank] > reduction.microbatch;
    if (!is_past && next_[rank] < actions.size() && actions[next_[rank]] != reduction) {
      return actions[next_[rank]];
    }
  }
  return std::nullopt;
}

void DependencyReplay::finish(const Action& action, int rank) {
  constexpr unsigned kDone[kOperations] = {kForward,
                                           kInputGradient | kWeightGradient,
                                           kInputGradient,
                                           kWeightGradient,
                                           0,
                                           kSentForward,
                                           kPostedForward,
                                           kSentBackward,
                                           kPostedBackward,
                                           0};
  const unsigned done = kDone[static_cast<std::size_t>(action.operation)];
  if (done != 0) {
    done_.at(action.stage, action.microbatch) |= static_cast<std::uint8_t>(done);
  } else if (action.operation == Operation::reduce_grad) {
    ++reductions_[static_cast<std::size_t>(rank)];
  }
}

void DependencyReplay::wake(const Action& action, int rank, std::vector<int>& open) const {
  if (is_send(action.operation)) {
    const Action receive = receive_of(action);
    open.push_back(schedule_.rank_of(receive.stage, receive.microbatch));
  } else if (is_receive(action.operation) && sends_wait_) {
    const Action send = send_of(action);
    open.push_back(schedule_.rank_of(send.stage, send.microbatch));
  } else if (schedule_.batch > 0 &&
             (gives_weight_gradient(action.operation) || action.operation == Operation::reduce_grad)) {
    // The other replicas may be waiting to reduce.
    for (int replica = 0; replica < schedule_.replicas_of(action.stage); ++replica) {
      if (const int other = schedule_.rank_of(action.stage, replica); other != rank) {
        open.push_back(other);
      }
    }
  }
}

}  // namespace stagecoach
