#pragma once
/// @file
/// Checks of the models that are split into stages.

#include <memory>

#include "nn/sequential.h"

namespace stagecoach {

/// Returns `model`. Throws UsageError, which begins with `wrapper`, for a model without layers, with the same layer
/// twice, or with two Dropout layers that would draw the same random numbers.
std::shared_ptr<Sequential> require_layers(const char* wrapper, std::shared_ptr<Sequential> model);

}  // namespace stagecoach
