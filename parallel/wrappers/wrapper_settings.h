#pragma once
/// @file
/// The settings that all wrappers have.

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "nn/optimizer.h"
#include "parallel/launch/rank_pool.h"

namespace stagecoach {

/// Makes the optimizer of some parameters of a model. Called on the thread of the rank that holds them.
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(NamedTensors parameters)>;

/// Returns functions that make these optimizers.
inline MakeOptimizer sgd(SgdSettings settings = {}) {
  return [settings](NamedTensors parameters) { return std::make_unique<Sgd>(std::move(parameters), settings); };
}
inline MakeOptimizer adam(AdamSettings settings = {}) {
  return [settings](NamedTensors parameters) { return std::make_unique<Adam>(std::move(parameters), settings); };
}

/// Throws UsageError, which begins with `wrapper`, unless `labels` is int32 [N] for N >= 1 `images`, which are float32
/// [N, …].
void require_batch(const char* wrapper, const Tensor& images, const Tensor& labels);
/// Throws UsageError likewise for images alone.
void require_images(const char* wrapper, const Tensor& images);

}  // namespace stagecoach
