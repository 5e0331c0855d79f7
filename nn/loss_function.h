#pragma once
/// @file
/// The loss that a model is trained with, as a value: cross-entropy, or a function of one's own.

#include <concepts>
#include <functional>
#include <type_traits>
#include <utility>

#include "core/ops.h"

namespace stagecoach {

/// Returns the cross-entropy of all logits [N, …, C] and labels [N, …] int32, summed over the samples. Stores the
/// logits in `predictions`, unless it is null.
inline Tensor loss_of_whole_logits(const Tensor& logits, const Tensor& labels, Tensor* predictions) {
  if (predictions != nullptr) {
    *predictions = logits.detach();
  }
  return cross_entropy(logits, labels, Reduction::sum);
}

/// A loss, and whether it is the mean or the sum over the samples: so that micro-batches of unequal size are weighted
/// correctly.
class LossFunction {
 public:
  LossFunction() : LossFunction(loss_of_whole_logits) {}
  /// `loss(output, target)` returns a scalar [] that is computed from the output. A mean may also be one over all
  /// elements of the output, as every sample has equally many; but not one over some of them, such as valid positions,
  /// of which micro-batches have different numbers: docs/examples/masked_loss.cpp trains that as a sum.
  template <class Loss>
  requires std::is_invocable_r_v<Tensor, Loss, const Tensor&, const Tensor&> LossFunction(Loss loss,
                                                                                          Reduction over_samples)
      : loss_([loss = std::move(loss)](const Tensor& output, const Tensor& target, Tensor* predictions) {
          if (predictions != nullptr) {
            *predictions = output.detach();
          }
          return loss(output, target);
        }),
        reduction_(over_samples) {}
  /// `loss(output, target, predictions)` also stores in `predictions`, unless it is null, what the model predicts, for
  /// count_correct: logits or classes.
  template <class Loss>
  requires(std::is_invocable_r_v<Tensor, Loss, const Tensor&, const Tensor&, Tensor*> &&
           !std::same_as<Loss, LossFunction>) LossFunction(Loss loss, Reduction over_samples = Reduction::sum)
      : loss_(std::move(loss)), reduction_(over_samples) {}

  /// Returns the loss of a micro-batch. Throws Error for one that is not a scalar, or that has no graph although the
  /// output has one.
  Tensor operator()(const Tensor& output, const Tensor& target, Tensor* predictions = nullptr) const;
  /// Returns by how much the loss of `samples` samples is multiplied in a sum over all samples.
  double weight(std::int64_t samples) const { return reduction_ == Reduction::sum ? 1 : static_cast<double>(samples); }

 private:
  std::function<Tensor(const Tensor& output, const Tensor& target, Tensor* predictions)> loss_;
  Reduction reduction_;
};

}  // namespace stagecoach
