#pragma once
/// @file
/// The common part of the two strategies in which one rank owns the weights.

#include <utility>

#include "chapters/06_ddp/replica.h"
#include "chapters/common/open.h"
#include "core/trace.h"
#include "parallel/data_parallel/flat.h"

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
  void make_owners_optimizer(NamedTensors parameters) {
    optimizer_ = make_optimizer(settings_.training, owns() ? std::move(parameters) : NamedTensors{});
  }
  /// Returns, on the owner, the sums of all ranks' gradients in one tensor: [all parameters]. Clears the gradients.
  Tensor reduce_gradients() {
    Tensor all = flattened(gradients_of(parameters_));
    for (auto& [name, parameter] : parameters_) {
      parameter.zero_grad();
    }
    communicate("gather gradients", [&] { rank_.comm.reduce(all, kOwner); });
    return all;
  }
  /// Updates the owner's weights with sums from reduce_gradients().
  void update_with(const Tensor& sums) {
    const Span span("optimizer", "update");
    const std::vector<Tensor> parameters = tensors_of(optimizer_->parameters());
    const std::vector<Tensor> views = views_of(sums, parameters);
    for (std::size_t i = 0; i < views.size(); ++i) {
      Tensor parameter = parameters[i];
      parameter.set_grad(views[i]);
    }
    optimizer_->step();
    optimizer_->zero_grad();
  }

 private:
  Sequential nothing_;
};

}  // namespace stagecoach
