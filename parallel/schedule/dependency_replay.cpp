#include "parallel/schedule/dependency_replay.h"

#include <algorithm>

#include "core/base/error.h"
#include "parallel/schedule/lower.h"

namespace stagecoach {

DependencyReplay::DependencyReplay(const Schedule& schedule, bool sends_wait)
    : schedule_(schedule),
      sends_wait_(sends_wait),
      done_(schedule.stage_count(), schedule.microbatches),
      next_(schedule.ranks.size()),
      reductions_(schedule.ranks.size()),
      updates_(schedule.ranks.size()) {
  STAGECOACH_CHECK(schedule.is_lowered,
                   "expected a lowered schedule, got one without communication; call lower() first");
}

std::optional<Action> DependencyReplay::unless_done(const Action& action) const {
  const Operation what = action.operation == Operation::backward ? Operation::backward_input : action.operation;
  const bool is_done = (done_.at(action.stage, action.microbatch) & bit_of(what)) != 0;
  return is_done ? std::nullopt : std::optional(action);
}

std::optional<Action> DependencyReplay::missing(const Action& action) const {
  const auto [operation, stage, microbatch] = action;
  switch (operation) {
    case Operation::forward:
      return input_missing(action);
    case Operation::backward:
    case Operation::backward_input: {
      const auto own_forward = unless_done({Operation::forward, stage, microbatch});
      return own_forward ? own_forward : input_missing(action);
    }
    case Operation::backward_weight:
      return unless_done({Operation::backward_input, stage, microbatch});
    case Operation::send_forward:
    case Operation::send_backward: {
      const bool goes_forward = operation == Operation::send_forward;
      const auto result = unless_done({goes_forward ? Operation::forward : Operation::backward, stage, microbatch});
      return result || !sends_wait_ ? result : unless_done(receive_of(action));
    }
    case Operation::receive_forward:
    case Operation::receive_backward:
      return std::nullopt;
    case Operation::reduce_grad: {
      const auto gradient = gradient_missing(action);
      return gradient || schedule_.batch == 0 ? gradient : replica_missing(action);
    }
    case Operation::update: {
      const auto gradient = gradient_missing(action);
      return gradient || !schedule_.has_rendezvous(schedule_.rank_of(action)) ? gradient : rank_missing(action);
    }
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
    return unless_done({goes_forward ? Operation::forward : Operation::backward, from, microbatch});
  }
  const Action receive{goes_forward ? Operation::receive_forward : Operation::receive_backward, stage, microbatch};
  const auto unposted = unless_done(receive);
  return unposted ? unposted : unless_done(send_of(receive));
}

/// Returns a backward that is missing among the micro-batches whose gradients a reduction sums or an update uses.
std::optional<Action> DependencyReplay::gradient_missing(const Action& reduction_or_update) const {
  const int stage = reduction_or_update.stage;
  const bool whole_step = schedule_.batch == 0;
  const int unit = whole_step ? schedule_.microbatches : schedule_.microbatches_per_update(stage);
  const int first = whole_step ? 0 : reduction_or_update.microbatch * unit;
  for (int i = first; i < std::min(first + unit, schedule_.microbatches); ++i) {
    if (unless_done({Operation::backward_weight, stage, i})) {
      return Action{Operation::backward, stage, i};
    }
  }
  return std::nullopt;
}

/// All replicas must reach a reduction. Returns the next action of a replica that has not.
std::optional<Action> DependencyReplay::replica_missing(const Action& reduction) const {
  for (int replica = 0; replica < schedule_.replicas_of(reduction.stage); ++replica) {
    if (const auto next = not_there(schedule_.rank_of(reduction.stage, replica), reduction, reductions_)) {
      return next;
    }
  }
  return std::nullopt;
}

/// Ranks that meet must all reach an update. Returns the next action of one that has not.
std::optional<Action> DependencyReplay::rank_missing(const Action& update) const {
  for (const int rank : schedule_.rendezvous) {
    if (const auto next = not_there(rank, update, updates_)) {
      return next;
    }
  }
  return std::nullopt;
}

std::optional<Action> DependencyReplay::not_there(int rank, const Action& rendezvous,
                                                  const std::vector<int>& done) const {
  if (done[static_cast<std::size_t>(rank)] > rendezvous.microbatch || is_done(rank)) {
    return std::nullopt;
  }
  const Action& its_next = schedule_.ranks[static_cast<std::size_t>(rank)][next(rank)];
  const bool is_there = its_next.operation == rendezvous.operation && its_next.microbatch == rendezvous.microbatch;
  return is_there ? std::nullopt : std::optional(its_next);
}

void DependencyReplay::finish(const Action& action, int rank) {
  if (action.operation == Operation::reduce_grad) {
    ++reductions_[static_cast<std::size_t>(rank)];
  } else if (action.operation == Operation::backward) {
    done_.at(action.stage, action.microbatch) |= bit_of(Operation::backward_input) | bit_of(Operation::backward_weight);
  } else if (action.operation == Operation::update) {
    ++updates_[static_cast<std::size_t>(rank)];
  } else {
    done_.at(action.stage, action.microbatch) |= bit_of(action.operation);
  }
}

void DependencyReplay::wake(const Action& action, int rank, std::vector<int>& open) const {
  if (is_send(action.operation) || (is_receive(action.operation) && sends_wait_)) {
    open.push_back(schedule_.rank_of(other_end(action)));
  } else if (action.operation == Operation::update && schedule_.has_rendezvous(rank)) {
    open.insert(open.end(), schedule_.rendezvous.begin(), schedule_.rendezvous.end());
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
