#include "chapters/06_ddp/weight_owner.h"

#include <utility>

#include "chapters/common/open.h"
#include "core/trace.h"
#include "parallel/data_parallel/flat.h"

namespace stagecoach {

void WeightOwner::make_owners_optimizer(NamedTensors parameters) {
  optimizer_ = make_optimizer(settings_.training, owns() ? std::move(parameters) : NamedTensors{});
}

Tensor WeightOwner::reduce_gradients() {
  Tensor all = flattened(gradients_of(parameters_));
  for (auto& [name, parameter] : parameters_) {
    parameter.zero_grad();
  }
  communicate("gather gradients", [&] { rank_.comm.reduce(all, kOwner); });
  return all;
}

void WeightOwner::update_with(const Tensor& sums) {
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

}  // namespace stagecoach
