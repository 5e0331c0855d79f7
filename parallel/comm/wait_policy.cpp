#include "parallel/comm/wait_policy.h"

#include <fmt/format.h>

namespace stagecoach {

SteadyTime deadline_after(std::chrono::duration<double> timeout, SteadyTime began) {
  constexpr std::chrono::duration<double> kLongest(1e9);
  const bool is_short = timeout < kLongest;  // false for NaN
  return began + std::chrono::duration_cast<SteadyTime::duration>(is_short ? std::max(timeout, -kLongest) : kLongest);
}

CommError stopped(const std::string& context, const std::string& who) {
  return CommError(fmt::format("{}: stopped because {}", context, who));
}

CommError aborted(const std::string& context) { return CommError(fmt::format("{}: aborted by this rank", context)); }

CommError no_answer(const std::string& context, std::chrono::duration<double> timeout) {
  return CommError(fmt::format(
      "{}: no answer within {} s; check whether the other rank is stuck or expects another message, or raise `timeout`",
      context, timeout.count()));
}

}  // namespace stagecoach
