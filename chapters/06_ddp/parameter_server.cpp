// A parameter server: one rank owns the weights. Its function is declared in strategy.h.

#include <utility>

#include "chapters/06_ddp/weight_owner.h"
#include "parallel/data_parallel/flat.h"

namespace stagecoach {
namespace {

/// All ranks compute gradients; the owner sums them, updates the weights, and broadcasts them. Only the owner has an
/// optimizer, and its weights and state are in CPU memory: the devices hold the model and nothing else.
class ParameterServer final : public WeightOwner {
 public:
  explicit ParameterServer(const Context& context) : WeightOwner(context) {
    NamedTensors variables;
    for (const auto& [name, parameter] : owns() ? parameters_ : NamedTensors{}) {
      variables.emplace_back(name, parameter.to(Device{}).clone());
      variables.back().second.set_requires_grad(true);
    }
    make_owners_optimizer(std::move(variables));
  }

  void broadcast_weights() override {
    Replica::broadcast_weights();
    if (owns()) {
      unflatten_into(flattened(tensors_of(parameters_)).to(Device{}), tensors_of(optimizer_->parameters()));
    }
  }

  void train_step(const MicroBatches& batch, EpochSums& sums) override {
    forward_backward(batch, sums);
    Tensor all = reduce_gradients();  // [all parameters]
    if (owns()) {
      update_with(all.to(Device{}));
      all.copy_from(flattened(tensors_of(optimizer_->parameters())));  // `all` now contains the weights
    }
    communicate("send weights", [&] { rank_.comm.broadcast(all, kOwner); });
    unflatten_into(all, tensors_of(parameters_));
    times_.end_step();
  }
};

}  // namespace

std::unique_ptr<Strategy> make_parameter_server(const Context& context) {
  return std::make_unique<ParameterServer>(context);
}

}  // namespace stagecoach
