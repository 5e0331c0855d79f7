#include "parallel/schedule/schedule.h"

#include <fmt/format.h>

#include "core/error.h"

namespace stagecoach {

char letter_of(Operation operation) { return "FBIWU"[static_cast<std::size_t>(operation)]; }

std::string to_string(const Action& action) {
  return fmt::format("{}{}{}", action.stage, letter_of(action.operation), action.microbatch);
}

Schedule with_fewer_microbatches(const Schedule& schedule, int count) {
  STAGECOACH_CHECK(count >= 1 && count <= schedule.microbatches, "{} micro-batches of a schedule of {}", count,
                   schedule.microbatches);
  Schedule fewer = schedule;
  fewer.microbatches = count;
  for (auto& actions : fewer.ranks) {
    std::erase_if(actions, [&](const Action& action) {
      const bool is_update = action.operation == Operation::update;
      return action.microbatch >= (is_update ? fewer.updates(action.stage) : count);
    });
  }
  return fewer;
}

Schedule forwards_of(const Schedule& schedule) {
  Schedule forwards = schedule;
  for (auto& actions : forwards.ranks) {
    std::erase_if(actions, [](const Action& action) { return action.operation != Operation::forward; });
  }
  return forwards;
}

}  // namespace stagecoach
