#pragma once
/// @file
/// What the two strategies have in common in which one rank owns the weights.

#include "chapters/06_ddp/replica.h"

namespace stagecoach {

/// All ranks have the model to compute with; only the owner has the state of the training, and updates it.
class WeightOwner : public Replica {
 public:
  using Replica::Replica;
  Module& model() override { return owns() ? *model_ : nothing_; }

 protected:
  static constexpr int kOwner = 0;
  bool owns() const { return rank_.index == kOwner; }

  /// Makes an optimizer for `parameters`, or for nothing on the other ranks.
  void open_owners_optimizer(NamedTensors parameters);
  /// Returns, on the owner, the sum of all ranks' gradients, one after the other: [all parameters]. Clears them.
  Tensor reduce_gradients();
  /// The owner's update with such sums.
  void update_with(const Tensor& sums);

 private:
  Sequential nothing_;
};

}  // namespace stagecoach
