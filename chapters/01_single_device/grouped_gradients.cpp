#include "chapters/01_single_device/grouped_gradients.h"

#include <utility>

#include "core/autograd/grad_mode.h"
#include "core/autograd/leaf_gradients.h"
#include "datasets/shares.h"

namespace stagecoach {

GroupedGradients::GroupedGradients(NamedTensors parameters, std::int64_t samples, std::int64_t groups)
    : parameters_(std::move(parameters)), samples_(samples), groups_(groups), sums_(parameters_.size()) {}

void GroupedGradients::add(std::int64_t samples) {
  done_ += samples;
  const Share group = share_of(samples_, group_, groups_);
  if (groups_ == 1 || done_ < group.first + group.count) {
    return;
  }
  const NoGrad no_grad;
  ++group_;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    Tensor& parameter = parameters_[i].second;
    Tensor sum_of_group = take_gradient(parameter);
    if (sum_of_group.defined()) {  // it is not, where a parameter is unused
      parameter.set_grad(sums_[i]);
      accumulate_leaf(std::move(sum_of_group), parameter);
      sums_[i] = take_gradient(parameter);
    }
    if (done_ == samples_) {
      parameter.set_grad(sums_[i]);
    }
  }
}

}  // namespace stagecoach
