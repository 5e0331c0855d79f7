#include "parallel/pipeline/recorded_passes.h"

#include <algorithm>

namespace stagecoach {

RecordedPasses::RecordedPasses(const Sequential& layers) {
  std::vector<Tensor> parameters;
  for (const auto& [name, parameter] : layers.named_parameters()) {
    parameters.push_back(parameter);
    weights_.push_back(parameter.storage());
  }
  gradients_ = std::make_shared<RecordedGradients>(std::move(parameters));
}

bool RecordedPasses::can_record() {
  const std::vector<Tensor>& parameters = gradients_->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    weights_have_moved_ = weights_have_moved_ || parameters[i].storage() != weights_[i];
  }
  if (weights_have_moved_) {
    passes_.clear();
    weights_.clear();
    return false;
  }
  return std::none_of(parameters.begin(), parameters.end(),
                      [](const Tensor& parameter) { return bool(parameter.gradient_hook()); });
}

std::shared_ptr<RecordedPass> RecordedPasses::free_pass(const Tensor& x, const Tensor& labels, bool wants_gradient,
                                                        bool is_training) {
  if (x.device().type != DeviceType::cuda || weights_have_moved_ || !can_record()) {
    return nullptr;
  }
  PassKind kind{{{x.shape(), x.dtype()}}, wants_gradient, is_training};
  if (labels.defined()) {
    kind.inputs.emplace_back(labels.shape(), labels.dtype());
  }
  const auto found = std::find_if(passes_.begin(), passes_.end(), [&](const auto& pass) {
    return pass.use_count() == 1 && !pass->is_lent() && pass->kind() == kind && pass->fits(x);
  });
  return found != passes_.end() ? *found
                                : passes_.emplace_back(std::make_shared<RecordedPass>(std::move(kind), gradients_));
}

}  // namespace stagecoach
