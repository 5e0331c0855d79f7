#include "parallel/schedule/schedule.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace stagecoach {

namespace {

/// Returns whether Action::microbatch is the index of an update.
bool counts_updates(Operation operation) {
  return operation == Operation::update || operation == Operation::reduce_grad;
}

bool goes_forward(Operation operation) {
  return operation == Operation::forward || operation == Operation::send_forward ||
         operation == Operation::receive_forward;
}

Schedule without(const Schedule& schedule, bool (*left_out)(Operation)) {
  Schedule rest = schedule;
  for (auto& actions : rest.ranks) {
    std::erase_if(actions, [&](const Action& action) { return left_out(action.operation); });
  }
  return rest;
}

}  // namespace

std::string_view symbol_of(Operation operation) {
  constexpr std::string_view kSymbols[kOperations] = {"F",      "B",      "I",      "W",      "U",
                                                      "SEND_F", "RECV_F", "SEND_B", "RECV_B", "REDUCE_GRAD"};
  return kSymbols[static_cast<std::size_t>(operation)];
}

const char* name_of(Operation operation) {
  constexpr const char* kNames[kOperations] = {"forward", "backward", "backward_input", "backward_weight", "optimizer",
                                               "send",    "receive",  "send",           "receive",         "reduce"};
  return kNames[static_cast<std::size_t>(operation)];
}

std::string to_string(const Action& action) {
  return action.microbatch == Action::kAllMicrobatches && !is_computation(action.operation)
             ? fmt::format("{}{}", action.stage, symbol_of(action.operation))
             : fmt::format("{}{}{}", action.stage, symbol_of(action.operation), action.microbatch);
}

std::size_t Schedule::action_count() const {
  std::size_t count = 0;
  for (const std::vector<Action>& actions : ranks) {
    count += actions.size();
  }
  return count;
}

Schedule with_fewer_microbatches(const Schedule& schedule, int count) {
  STAGECOACH_CHECK(count >= 1 && count <= schedule.microbatches, "expected from 1 to {1} micro-batches, got {0}", count,
                   schedule.microbatches);
  Schedule fewer = schedule;
  fewer.microbatches = count;
  for (auto& actions : fewer.ranks) {
    std::erase_if(actions, [&](const Action& action) {
      return action.microbatch >= (counts_updates(action.operation) ? fewer.updates(action.stage) : count);
    });
  }
  return fewer;
}

Schedule forwards_of(const Schedule& schedule) {
  return without(schedule, [](Operation operation) { return !goes_forward(operation); });
}

Schedule backwards_of(const Schedule& schedule) { return without(schedule, goes_forward); }

Schedule computations_of(const Schedule& schedule) {
  Schedule computations = without(schedule, is_communication);
  computations.is_lowered = false;
  computations.sends_wait = false;
  return computations;
}

}  // namespace stagecoach
