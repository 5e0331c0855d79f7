// One rank owns the weights, as a parameter server does; its function stands in way.h.

#include "chapters/06_ddp/replica.h"
#include "core/trace.h"
#include "parallel/data_parallel/flat.h"

namespace stagecoach {
namespace {

constexpr int kOwner = 0;

/// All ranks compute gradients; the owner sums them, steps, and sends the new weights out. Only it has an optimizer,
/// and both lie in CPU memory: the others' devices hold the model and nothing else.
class Central final : public Replica {
 public:
  explicit Central(const Start& start) : Replica(start) {
    NamedTensors variables;
    for (const auto& [name, parameter] : owns() ? parameters_ : NamedTensors{}) {
      variables.emplace_back(name, parameter.to(Device{}).clone());
      variables.back().second.set_requires_grad(true);
    }
    optimizer_ = make_optimizer(settings_.optimizer, std::move(variables), settings_.lr, settings_.momentum,
                                settings_.weight_decay);
  }

  Module& model() override { return owns() ? *model_ : nothing_; }

  void start() override {
    Replica::start();
    if (owns()) {
      take_values(flattened(tensors_of(parameters_)).to(Device{}), tensors_of(optimizer_->parameters()));
    }
  }

  void step(const Step& step, EpochSums& sums) override {
    run_shard(step, sums, [](bool, const Tensor&) {});
    std::vector<Tensor> gradients;
    for (auto& [name, parameter] : parameters_) {
      gradients.push_back(parameter.grad());
      parameter.zero_grad();
    }
    Tensor all = flattened(gradients);  // [all parameters]: first gradients, then weights
    communicate("gather gradients", [&] { rank_.comm.reduce(all, kOwner); });
    if (owns()) {
      all.copy_from(updated(all.to(Device{})));
    }
    communicate("send weights", [&] { rank_.comm.broadcast(all, kOwner); });
    take_values(all, tensors_of(parameters_));
    times_.end_step();
  }

 private:
  bool owns() const { return rank_.index == kOwner; }

  /// The weights after a step with `gradients`, both [all parameters].
  Tensor updated(const Tensor& gradients) {
    const Span span("optimizer", "update");
    const NamedTensors& variables = optimizer_->parameters();
    const std::vector<Tensor> views = views_of(gradients, tensors_of(variables));
    for (std::size_t i = 0; i < views.size(); ++i) {
      Tensor variable = variables[i].second;
      variable.set_grad(views[i]);
    }
    optimizer_->step();
    optimizer_->zero_grad();
    return flattened(tensors_of(variables));
  }

  Sequential nothing_;
};

}  // namespace

std::unique_ptr<Way> make_central(const Start& start) { return std::make_unique<Central>(start); }

}  // namespace stagecoach
