#include "nn/rate_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace stagecoach {

double RateSchedule::factor(std::int64_t step) const {
  if (step < warm_up) {
    return static_cast<double>(step + 1) / static_cast<double>(warm_up);
  }
  const double progress =
      static_cast<double>(step - warm_up) / static_cast<double>(std::max<std::int64_t>(steps - warm_up, 1));
  switch (shape) {
    case RateShape::cosine:
      return (1 + std::cos(std::numbers::pi * std::min(progress, 1.0))) / 2;
    case RateShape::step:
      return progress < 1.0 / 3 ? 1 : progress < 2.0 / 3 ? 0.1 : 0.01;
    default:
      return 1;
  }
}

}  // namespace stagecoach
