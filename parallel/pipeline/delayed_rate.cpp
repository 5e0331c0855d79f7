#include "parallel/pipeline/delayed_rate.h"

#include <algorithm>
#include <cmath>

namespace stagecoach {

double delay_divisor(std::int64_t discount, int delay, std::int64_t batches) {
  const double done = discount > 0 ? std::min(1.0, static_cast<double>(batches) / static_cast<double>(discount)) : 1;
  return std::pow(delay + 1.0, 1 - done);
}

}  // namespace stagecoach
