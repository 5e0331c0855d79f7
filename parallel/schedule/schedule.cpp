#include "parallel/schedule/schedule.h"

#include <fmt/format.h>

namespace stagecoach {

char letter_of(Operation operation) { return "FBIW"[static_cast<std::size_t>(operation)]; }

std::string to_string(const Action& action) {
  return fmt::format("{}{}{}", action.stage, letter_of(action.operation), action.microbatch);
}

std::vector<int> dealt_in_turn(int stages, int ranks) {
  std::vector<int> holder(static_cast<std::size_t>(stages));
  for (int s = 0; s < stages; ++s) {
    holder[static_cast<std::size_t>(s)] = s % ranks;
  }
  return holder;
}

}  // namespace stagecoach
