#pragma once
/// @file
/// The cross-entropy of logits whose classes are cut over ranks. The logits are never gathered.
///
/// -log softmax(logits)[label] = (largest - logit of the label) + log of the sum of exp(logit - largest). So each rank
/// computes four numbers per sample of its own classes: the largest logit and its class, the sum of exp(logit -
/// largest), and the label's logit if the label is among its classes. One all-gather later every rank has those of all,
/// and combines them in rank order: the loss, and the class that the model predicts. The gradient, softmax minus one at
/// the label, needs no exchange. Megatron-LM's vocab_parallel_cross_entropy does it with three all-reduces (Shoeybi et
/// al., "Megatron-LM", 2019, section 3); it has no need of the predicted class.

#include "nn/loss_function.h"
#include "parallel/tensor_parallel/tensor_group.h"

namespace stagecoach {

/// Numbers per sample that each rank sends.
inline constexpr std::int64_t kClassStatistics = 4;

/// Returns the loss of this rank's slice of the logits, [N, …, C / ranks]; the ranks have slices in their order. All
/// ranks call it together. Predictions are classes, int32 like the labels [N, …].
LossFunction class_parallel_loss(const TensorGroup& group);
/// Returns the oracle: the loss of all logits [N, …, C] on one device, computed in as many slices, with equal bytes.
LossFunction sliced_class_loss(int slices);

}  // namespace stagecoach
