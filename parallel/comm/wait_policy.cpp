#include "parallel/comm/wait_policy.h"

#include <fmt/format.h>

#include <algorithm>

namespace stagecoach {

std::chrono::steady_clock::time_point deadline_after(std::chrono::duration<double> timeout) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::duration<double> kLongest(1e9);
  const bool is_short = timeout < kLongest;  // false for NaN
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(is_short ? std::max(timeout, -kLongest) : kLongest);
}

CommError stopped(const std::string& context, const std::string& who) {
  return CommError(fmt::format("{}: stopped because {}", context, who));
}

CommError aborted(const std::string& context) { return CommError(fmt::format("{}: aborted by this rank", context)); }

CommError no_answer(const std::string& context, std::chrono::duration<double> timeout) {
  return CommError(fmt::format(
      "{}: no answer within {} s; check whether the other rank is stuck or expects another message, or raise --timeout",
      context, timeout.count()));
}

}  // namespace stagecoach
