#pragma once
/// @file
/// The upstream gradient of a loss that is a sum over one rank's samples.

#include <cstdint>

#include "core/tensor.h"

namespace stagecoach {

/// Returns the gradient of a summed loss for which the mean over `samples` is trained. Throws Error, in the name of
/// `wrapper`, for a loss that has no backward and for fewer than one sample.
Tensor share_of_mean(const char* wrapper, const Tensor& loss, std::int64_t samples);

}  // namespace stagecoach
