#pragma once
/// @file
/// Learning rates for gradients that come late.

#include <cstdint>

namespace stagecoach {

struct RateSettings {
  double rate = 0;            ///< in the end
  std::int64_t warm_up = 0;   ///< batches in which it rises in equal steps; 0: at once
  std::int64_t discount = 0;  ///< batches in which delayed stages have a lower one; 0: never
};

/// The learning rate of a stage whose gradients come `delay` updates too late, after `batches` batches:
/// rate * min(1, (batches + 1) / warm_up) / (delay + 1)^(1 - min(1, batches / discount)).
/// Sources: Goyal et al., "Accurate, large minibatch SGD", 2017, section 2.2 (warm-up); Yang et al., "PipeMare", 2021,
/// section 3.1 (discount, which divides by the delay until it has faded out).
double delayed_rate(const RateSettings& settings, int delay, std::int64_t batches);

}  // namespace stagecoach
