#pragma once
/// @file
/// Functions that make optimizers: for code that is told which optimizer to use before there are parameters.

#include <functional>
#include <memory>
#include <utility>

#include "nn/optimizer.h"

namespace stagecoach {

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(NamedTensors parameters)>;

inline MakeOptimizer sgd(const SgdSettings& settings = {}) {
  return [settings](NamedTensors parameters) { return std::make_unique<Sgd>(std::move(parameters), settings); };
}
inline MakeOptimizer adam(const AdamSettings& settings = {}) {
  return [settings](NamedTensors parameters) { return std::make_unique<Adam>(std::move(parameters), settings); };
}
inline MakeOptimizer adamw(AdamSettings settings = {}) {
  settings.decoupled_decay = true;
  return adam(settings);
}
inline MakeOptimizer adagrad(const AdagradSettings& settings = {}) {
  return [settings](NamedTensors parameters) { return std::make_unique<Adagrad>(std::move(parameters), settings); };
}

}  // namespace stagecoach
