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

CommError stopped(const std::string& doing, const std::string& who) {
  return CommError(fmt::format("{}: stopped, as {}", doing, who));
}

CommError aborted(const std::string& doing) { return CommError(fmt::format("{}: aborted by this rank", doing)); }

CommError no_answer(const std::string& doing, std::chrono::duration<double> timeout) {
  return CommError(
      fmt::format("{}: no answer within {} s; is the other rank stuck, or does it expect other messages? "
                  "(--timeout waits longer)",
                  doing, timeout.count()));
}

}  // namespace stagecoach
