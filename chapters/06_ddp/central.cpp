// One rank owns the weights, as a parameter server does; its function stands in way.h.

#include <utility>

#include "chapters/06_ddp/owned.h"
#include "parallel/data_parallel/flat.h"

namespace stagecoach {
namespace {

/// All ranks compute gradients; the owner sums them, steps, and sends the new weights out. Only it has an optimizer,
/// and both lie in CPU memory: the others' devices hold the model and nothing else.
class Central final : public Owned {
 public:
  explicit Central(const Start& start) : Owned(start) {
    NamedTensors variables;
    for (const auto& [name, parameter] : owns() ? parameters_ : NamedTensors{}) {
      variables.emplace_back(name, parameter.to(Device{}).clone());
      variables.back().second.set_requires_grad(true);
    }
    open_owners_optimizer(std::move(variables));
  }

  void start() override {
    Replica::start();
    if (owns()) {
      take_values(flattened(tensors_of(parameters_)).to(Device{}), tensors_of(optimizer_->parameters()));
    }
  }

  void step(const MicroBatches& batch, EpochSums& sums) override {
    run_shard(batch, sums, [](bool, const Tensor&) {});
    Tensor all = gather_gradients();  // [all parameters]
    if (owns()) {
      step_with(all.to(Device{}));
      all.copy_from(flattened(tensors_of(optimizer_->parameters())));  // from here on the weights
    }
    communicate("send weights", [&] { rank_.comm.broadcast(all, kOwner); });
    take_values(all, tensors_of(parameters_));
    times_.end_step();
  }
};

}  // namespace

std::unique_ptr<Way> make_central(const Start& start) { return std::make_unique<Central>(start); }

}  // namespace stagecoach
