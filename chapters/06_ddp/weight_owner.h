#pragma once
/// @file
/// The common part of the two strategies in which one rank owns the weights.

#include "chapters/06_ddp/replica.h"

namespace stagecoach {

/// A rank of such a strategy. All ranks compute with a model; only the owner has the training state, and updates it.
class WeightOwner : public Replica {
 public:
  using Replica::Replica;
  Module& model() override { return owns() ? *model_ : nothing_; }

 protected:
  static constexpr int kOwner = 0;
  bool owns() const { return rank_.index == kOwner; }

  /// Makes the optimizer: for `parameters` on the owner, for no parameters on the other ranks.
  void make_owners_optimizer(NamedTensors parameters);
  /// Returns, on the owner, the sums of all ranks' gradients in one tensor: [all parameters]. Clears the gradients.
  Tensor reduce_gradients();
  /// Updates the owner's weights with sums from reduce_gradients().
  void update_with(const Tensor& sums);

 private:
  Sequential nothing_;
};

}  // namespace stagecoach
