#pragma once
/// @file
/// Learning rates for delayed gradients.

#include <cstdint>

namespace stagecoach {

struct RateSettings {
  double rate = 0;            ///< once warm-up and discount are over
  std::int64_t warm_up = 0;   ///< batches over which the rate rises in equal steps; 0: no warm-up
  std::int64_t discount = 0;  ///< batches over which delayed stages have a lower rate; 0: no discount
};

/// Returns the learning rate, after `batches` batches, of a stage whose gradients are `delay` updates late:
/// rate * min(1, (batches + 1) / warm_up) / (delay + 1)^(1 - min(1, batches / discount)).
/// Sources: Goyal et al., "Accurate, large minibatch SGD", 2017, section 2.2 (warm-up); Yang et al., "PipeMare", 2021,
/// section 3.1 (discount, which initially divides by the delay and then fades out).
double delayed_rate(const RateSettings& settings, int delay, std::int64_t batches);

}  // namespace stagecoach
