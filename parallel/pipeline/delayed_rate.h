#pragma once
/// @file
/// Learning rates for delayed gradients.

#include <cstdint>

namespace stagecoach {

/// Returns what the learning rate of a stage is divided by, after `batches` batches, if its gradients are `delay`
/// updates late: (delay + 1)^(1 - min(1, batches / discount)), which fades out over `discount` batches (0: it is 1).
/// Source: Yang et al., "PipeMare", 2021, section 3.1.
double delay_divisor(std::int64_t discount, int delay, std::int64_t batches);

}  // namespace stagecoach
