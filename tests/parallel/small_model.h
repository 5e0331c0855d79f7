#pragma once
/// @file
/// A model for the wrappers that trains in no time.

#include <memory>

#include "nn/layers.h"
#include "nn/sequential.h"

namespace stagecoach::test {

/// Two layers, for points [N, 4].
inline std::shared_ptr<Sequential> small_model() {
  auto model = std::make_shared<Sequential>();
  model->add("fc1", std::make_shared<Linear>(4, 8)).add("fc2", std::make_shared<Linear>(8, 3));
  return model;
}

}  // namespace stagecoach::test
