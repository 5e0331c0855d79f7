// A parameter server: one rank owns the weights. The function is declared in strategy.h.

#include <memory>
#include <utility>
#include <vector>

#include "chapters/06_ddp/replica.h"
#include "chapters/common/open.h"
#include "core/trace.h"
#include "parallel/data_parallel/flat.h"

namespace stagecoach {
namespace {

/// All ranks compute gradients; the owner sums them, updates the weights, and broadcasts them. Only the owner has an
/// optimizer, and its weights and state are in CPU memory: the devices hold the model and nothing else.
class ParameterServer final : public Replica {
 public:
  explicit ParameterServer(const Context& context) : Replica(context) {
    for (const auto& [name, parameter] : owns() ? parameters_ : NamedTensors{}) {
      variables_.emplace_back(name, parameter.to(host_).clone());
      variables_.back().second.set_requires_grad(true);
    }
    optimizer_ = make_optimizer(settings_.training, variables_);
  }

  Module& model() override { return owns() ? *model_ : nothing_; }

  void broadcast_weights() override {
    Replica::broadcast_weights();
    if (owns()) {
      unflatten_into(flattened(tensors_of(parameters_)).to(host_), tensors_of(variables_));
    }
  }

  void sum_gradients() override {
    all_ = flattened(gradients_of(parameters_));
    for (auto& [name, parameter] : parameters_) {
      parameter.zero_grad();
    }
    communicate("gather gradients", [&] { rank_.comm.reduce(all_, kOwner); });
  }

  void update() override {
    if (owns()) {
      update_owner();
      all_.copy_from(flattened(tensors_of(variables_)));
    }
    communicate("send weights", [&] { rank_.comm.broadcast(all_, kOwner); });
    unflatten_into(all_, tensors_of(parameters_));
    all_ = {};
    times_.end_step();
  }

 private:
  static constexpr int kOwner = 0;
  bool owns() const { return rank_.index == kOwner; }

  /// Updates the owner's weights with the sums of all ranks' gradients.
  void update_owner() {
    const Span span("optimizer", "update");
    const std::vector<Tensor> parameters = tensors_of(variables_);
    const std::vector<Tensor> gradients = views_of(all_.to(host_), parameters);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      Tensor parameter = parameters[i];
      parameter.set_grad(gradients[i]);
    }
    optimizer_->step();
    optimizer_->zero_grad();
  }

  // The tensors of a plan have no elements, but those of its host are elsewhere, too.
  const Device host_ = rank_.device.type == DeviceType::meta ? Device{DeviceType::meta, 1} : Device{};
  NamedTensors variables_;  // of the owner: the parameters, in memory of the host
  Tensor all_;              // [all parameters]: the gradients, then the weights
  Sequential nothing_;
};

}  // namespace

std::unique_ptr<Strategy> make_parameter_server(const Context& context) {
  return std::make_unique<ParameterServer>(context);
}

}  // namespace stagecoach
