#pragma once
/// @file
/// The loss of a classifier, which needs to know whether it gets all logits of a sample or, with tensor parallelism, a
/// slice of them.

#include <functional>

#include "core/ops.h"

namespace stagecoach {

/// Returns the sum over the samples of -log softmax(logits)[label], a scalar. Stores in `predictions`, unless it is
/// null, what the model predicts, for count_correct: logits or classes.
using ClassifierLoss = std::function<Tensor(const Tensor& logits, const Tensor& labels, Tensor* predictions)>;

/// The loss of all logits, [N, C].
inline Tensor loss_of_whole_logits(const Tensor& logits, const Tensor& labels, Tensor* predictions) {
  if (predictions != nullptr) {
    *predictions = logits.detach();
  }
  return cross_entropy(logits, labels, Reduction::sum);
}

}  // namespace stagecoach
