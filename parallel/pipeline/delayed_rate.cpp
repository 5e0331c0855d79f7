#include "parallel/pipeline/delayed_rate.h"

#include <algorithm>
#include <cmath>

namespace stagecoach {
namespace {

/// Returns the fraction of `whole` that is done; 1 if `whole` is 0.
double share(std::int64_t done, std::int64_t whole) {
  return whole > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(whole)) : 1.0;
}

}  // namespace

double delayed_rate(const RateSettings& settings, int delay, std::int64_t batches) {
  const double discount = std::pow(delay + 1.0, 1 - share(batches, settings.discount));
  return settings.rate * share(batches + 1, settings.warm_up) / discount;
}

}  // namespace stagecoach
