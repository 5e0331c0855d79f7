#pragma once
/// @file
/// What a training adds up over an epoch, where it is computed: to read a number from a GPU one must wait for the GPU.

#include "core/tensor.h"

namespace stagecoach {

struct EpochSums {
  explicit EpochSums(Device device)
      : loss(Tensor::zeros({}, DType::float64, device)), correct(Tensor::zeros({}, DType::int32, device)) {}
  Tensor loss;     ///< [] float64: over the pictures seen
  Tensor correct;  ///< [] int32: of them
};

}  // namespace stagecoach
