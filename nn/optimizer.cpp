#include "nn/optimizer.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <unordered_set>

#include "core/autograd/grad_mode.h"
#include "core/base/throw_if.h"

namespace stagecoach {
namespace {

void require_finite_and_not_negative(const char* name, double value) {
  throw_if<UsageError>(!std::isfinite(value) || value < 0, "optimizer: expected a finite {} of 0 or more, got {}", name,
                       value);
}

void require_fraction(const char* name, double value) {
  throw_if<UsageError>(!(value >= 0 && value < 1), "optimizer: expected {} in [0, 1), got {}", name, value);
}

Tensor counter(Device device) { return Tensor::zeros({}, DType::int32, device); }

}  // namespace

Optimizer::Optimizer(NamedTensors parameters)
    : parameters_(std::move(parameters)), states_(parameters_.size()), decays_(parameters_.size(), true) {
  steps_done_ = counter(parameters_.empty() ? Device{} : parameters_.front().second.device());
  std::unordered_set<const void*> seen;
  std::unordered_set<std::string> names;
  for (const auto& [name, tensor] : parameters_) {
    STAGECOACH_CHECK(tensor.is_leaf() && tensor.requires_grad(),
                     "optimizer: expected leaves that require a gradient, got '{}'", name);
    STAGECOACH_CHECK(seen.insert(tensor.id()).second && names.insert(name).second,
                     "optimizer: expected each parameter once, got '{}' twice", name);
    updates_.push_back(counter(tensor.device()));
  }
}

void Optimizer::clip_norm(double max_norm) {
  throw_if<UsageError>(!(max_norm > 0), "optimizer: expected a positive norm to clip to, got {}", max_norm);
  max_norm_ = max_norm;
}

void Optimizer::tie(std::function<void()> sum_gradients, std::function<void()> copy_values) {
  const auto after = [](std::function<void()> earlier, std::function<void()> later) {
    return [earlier = std::move(earlier), later = std::move(later)] {
      earlier();
      later();
    };
  };
  sum_gradients_ = after(std::move(sum_gradients_), std::move(sum_gradients));
  copy_values_ = after(std::move(copy_values_), std::move(copy_values));
}

void Optimizer::decay_only(const std::function<bool(const std::string& name, const Tensor& parameter)>& decays) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    decays_[i] = decays(parameters_[i].first, parameters_[i].second);
  }
}

void Optimizer::decay_weights_only() {
  decay_only([](const std::string&, const Tensor& parameter) { return parameter.dims() >= 2; });
}

void Optimizer::step() {
  std::set<Device> devices{steps_done_.device()};
  for (const auto& [name, parameter] : parameters_) {
    devices.insert(parameter.device());
  }
  step([&](const UpdateDevice& update) { std::for_each(devices.begin(), devices.end(), update); });
}

void Optimizer::step(const std::function<void(const UpdateDevice& update)>& run) {
  const NoGrad no_grad;
  const double began = clock_();
  sum_gradients_();
  if (clips()) {
    clip_grad_norm(parameters_, max_norm_, sums_);
  }
  run([this](Device device) { update_device(device); });
  copy_values_();
  seconds_in_steps_ += clock_() - began;
}

void Optimizer::update_device(Device device) {
  const NoGrad no_grad;
  std::vector<ParameterUpdate> updates;  // of the parameters that have gradients
  std::vector<Tensor> counters;
  if (steps_done_.device() == device) {
    counters.push_back(steps_done_);
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& parameter = parameters_[i].second;
    const Tensor grad = parameter.device() == device ? parameter.grad() : Tensor{};
    if (grad.defined()) {
      updates.push_back({grad, parameter, states_[i], updates_[i], decays_[i]});
      counters.push_back(updates_[i]);
    }
  }
  if (!counters.empty()) {
    kernels(device).increment(counters);
  }
  if (!updates.empty()) {
    update(device, updates);
  }
}

void Optimizer::zero_grad() {
  for (auto& [name, tensor] : parameters_) {
    tensor.zero_grad();
  }
}

NamedTensors Optimizer::state() const {
  throw_if<UsageError>(samples_since_step() > 0,
                       "optimizer: expected a step after the last batch, got the gradients of {} samples without one, "
                       "which would be lost; call step(), or zero_grad() to drop them, before the state is saved or "
                       "loaded",
                       samples_since_step());
  NamedTensors state;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::string& name = parameters_[i].first;
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      state.emplace_back(name + "." + parts_[part], states_[i][part]);
    }
    state.emplace_back(name + ".updates", updates_[i]);
  }
  state.emplace_back("steps_done", steps_done_);
  return state;
}

void Optimizer::load_state(const NamedTensors& state) {
  copy_by_name(state, this->state(), "the optimizer's saved state");
}

void Optimizer::add_state(const std::string& part) {
  parts_.push_back(part);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& parameter = parameters_[i].second;
    states_[i].push_back(Tensor::zeros(parameter.shape(), parameter.dtype(), parameter.device()));
  }
}

template <class Settings>
OptimizerWith<Settings>::OptimizerWith(NamedTensors parameters, const Settings& settings)
    : Optimizer(std::move(parameters)), settings_(settings) {
  require_finite_and_not_negative("learning rate", settings.learning_rate);
  require_finite_and_not_negative("weight decay", settings.weight_decay);
}

template <class Settings>
void OptimizerWith<Settings>::set_learning_rate(double rate) {
  require_finite_and_not_negative("learning rate", rate);
  settings_.learning_rate = rate;
}

Sgd::Sgd(NamedTensors parameters, const SgdSettings& settings) : OptimizerWith(std::move(parameters), settings) {
  require_fraction("momentum", settings.momentum);
  if (settings.momentum != 0) {
    add_state("velocity");
  }
}

void Sgd::update(Device device, std::span<ParameterUpdate> updates) { kernels(device).sgd_step(updates, settings_); }

Adam::Adam(NamedTensors parameters, const AdamSettings& settings) : OptimizerWith(std::move(parameters), settings) {
  require_fraction("beta1", settings.beta1);
  require_fraction("beta2", settings.beta2);
  throw_if<UsageError>(!(settings.epsilon > 0), "optimizer: expected a positive epsilon, got {}", settings.epsilon);
  add_state("first_moment");
  add_state("second_moment");
}

void Adam::update(Device device, std::span<ParameterUpdate> updates) { kernels(device).adam_step(updates, settings_); }

Adagrad::Adagrad(NamedTensors parameters, const AdagradSettings& settings)
    : OptimizerWith(std::move(parameters), settings) {
  throw_if<UsageError>(!(settings.epsilon > 0), "optimizer: expected a positive epsilon, got {}", settings.epsilon);
  add_state("sum");
}

void Adagrad::update(Device device, std::span<ParameterUpdate> updates) {
  kernels(device).adagrad_step(updates, settings_);
}

std::unique_ptr<Optimizer> make_optimizer(OptimizerKind kind, NamedTensors parameters, double learning_rate,
                                          double momentum, double weight_decay) {
  if (kind == OptimizerKind::sgd) {
    return std::make_unique<Sgd>(
        std::move(parameters),
        SgdSettings{.learning_rate = learning_rate, .momentum = momentum, .weight_decay = weight_decay});
  }
  throw_if<UsageError>(momentum != 0, "optimizer: expected no momentum, which only sgd takes, got {}", momentum);
  if (kind == OptimizerKind::adagrad) {
    return std::make_unique<Adagrad>(std::move(parameters),
                                     AdagradSettings{.learning_rate = learning_rate, .weight_decay = weight_decay});
  }
  return std::make_unique<Adam>(std::move(parameters), AdamSettings{.learning_rate = learning_rate,
                                                                    .weight_decay = weight_decay,
                                                                    .decoupled_decay = kind == OptimizerKind::adamw});
}

double sum_of_squares(const Tensor& tensor) {
  const Tensor here = tensor.to(Device{});
  return dispatch_floating(here.dtype(), "sum_of_squares", [&]<class T>() {
    const T* values = here.data<T>();
    double sum = 0;
    for (std::int64_t i = 0; i < here.numel(); ++i) {
      sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
    return sum;
  });
}

}  // namespace stagecoach
