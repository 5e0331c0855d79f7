#pragma once
/// @file
/// The sums over an epoch. They are on the device, because reading a number from a GPU means waiting for the GPU.

#include "core/ops.h"
#include "core/tensor.h"

namespace stagecoach {

struct EpochSums {
  explicit EpochSums(Device device)
      : loss(Tensor::zeros({}, DType::float64, device)), correct(Tensor::zeros({}, DType::int32, device)) {}

  /// Adds a micro-batch: the sum of its losses [], and the number of images whose logits [n, classes] are highest for
  /// the label [n].
  void add(const Tensor& loss_sum, const Tensor& logits, const Tensor& labels) {
    accumulate(loss_sum, loss);
    count_correct(logits, labels, correct);
  }

  Tensor loss;     ///< [] float64, summed over the images seen
  Tensor correct;  ///< [] int32, how many of them were classified correctly
};

}  // namespace stagecoach
