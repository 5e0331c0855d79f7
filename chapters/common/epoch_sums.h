#pragma once
/// @file
/// What a training adds up over an epoch, on the device: to read a number from a GPU one must wait for the GPU.

#include "core/ops.h"
#include "core/tensor.h"

namespace stagecoach {

struct EpochSums {
  explicit EpochSums(Device device)
      : loss(Tensor::zeros({}, DType::float64, device)), correct(Tensor::zeros({}, DType::int32, device)) {}

  /// Adds a micro-batch: the sum of its losses [], and for how many of its images the logits [n, classes] are highest
  /// for the label [n].
  void add(const Tensor& loss_sum, const Tensor& logits, const Tensor& labels) {
    accumulate(loss_sum, loss);
    count_correct(logits, labels, correct);
  }

  Tensor loss;     ///< [] float64, over the images seen
  Tensor correct;  ///< [] int32, of them
};

}  // namespace stagecoach
