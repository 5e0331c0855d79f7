#pragma once
/// @file
/// What the two ways have in common in which one rank owns the weights.

#include "chapters/06_ddp/replica.h"

namespace stagecoach {

/// All ranks have the model to compute with; the owner alone has the training's state, and steps.
class Owned : public Replica {
 public:
  using Replica::Replica;
  Module& model() override { return owns() ? *model_ : nothing_; }

 protected:
  static constexpr int kOwner = 0;
  bool owns() const { return rank_.index == kOwner; }

  /// An optimizer over `parameters`, or over nothing on the other ranks.
  void open_owners_optimizer(NamedTensors parameters);
  /// The owner gets the sum of all ranks' gradients, one behind the other: [all parameters]. They are forgotten.
  Tensor gather_gradients();
  /// The owner's step with such sums.
  void step_with(const Tensor& sums);

 private:
  Sequential nothing_;
};

}  // namespace stagecoach
