#include "parallel/comm/patience.h"

#include <fmt/format.h>

namespace stagecoach {

CommError stopped(const std::string& doing, const std::string& who) {
  return CommError(fmt::format("{}: stopped, as {}", doing, who));
}

CommError given_up(const std::string& doing) { return CommError(fmt::format("{}: given up by this rank", doing)); }

CommError no_answer(const std::string& doing, std::chrono::duration<double> timeout) {
  return CommError(
      fmt::format("{}: no answer within {} s; is the other rank stuck, or does it expect other messages? "
                  "(--timeout waits longer)",
                  doing, timeout.count()));
}

}  // namespace stagecoach
