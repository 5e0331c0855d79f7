#include "parallel/layer_profile.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "core/allocator.h"
#include "core/autograd/backward.h"
#include "core/error.h"
#include "core/stream.h"

namespace stagecoach {
namespace {

double seconds_of(Device device, const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  synchronize({device, Stream::kCompute});
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Measured {
  std::vector<double> forward;
  std::vector<double> backward_input;
  std::vector<double> backward_weight;
};

/// One layer, forward and backward. `x` wants a gradient if it is recorded to want one. Gives the output, without
/// history.
Tensor run_layer(Module& layer, const Tensor& x, Measured& times, LayerProfile& profile) {
  const Device device = x.device();
  const auto in_use = [&] { return static_cast<std::int64_t>(allocator(device).stats().current_bytes); };
  const std::int64_t before = in_use();
  Tensor y;
  times.forward.push_back(seconds_of(device, [&] { y = layer.forward(x); }));
  profile.kept_bytes = in_use() - before;
  profile.output_bytes = static_cast<std::int64_t>(y.bytes());
  const Tensor output = y.detach();
  if (!y.requires_grad()) {
    return output;  // nothing before it wants a gradient, and it has no weights
  }
  const Tensor grad = Tensor::full(y.shape(), 1, y.dtype(), device);
  DeferredGradients weights;
  std::vector<Tensor> inputs;
  if (x.requires_grad()) {
    inputs.push_back(x);
  }
  times.backward_input.push_back(seconds_of(device, [&] { weights = backward_inputs(y, grad, inputs); }));
  times.backward_weight.push_back(seconds_of(device, [&] { weights.run(); }));
  return output;
}

}  // namespace

std::vector<LayerProfile> profile_layers(Sequential& model, const Tensor& input, int repeats) {
  STAGECOACH_CHECK(repeats >= 1, "profile: {} repeats", repeats);
  const auto layers = static_cast<std::size_t>(model.size());
  std::vector<LayerProfile> profiles(layers);
  std::vector<Measured> times(layers);
  for (int repeat = 0; repeat <= repeats; ++repeat) {  // the first one fills the caches, and does not count
    Tensor x = input.detach();
    for (std::size_t i = 0; i < layers; ++i) {
      if (repeat == 1) {
        times[i] = {};
      }
      Module& layer = *model.layer(static_cast<int>(i));
      if (i > 0) {
        x.set_requires_grad(true);
      }
      x = run_layer(layer, x, times[i], profiles[i]);
      for (auto [name, parameter] : layer.named_parameters()) {
        parameter.zero_grad();
      }
    }
  }
  for (std::size_t i = 0; i < layers; ++i) {
    profiles[i].forward = median(times[i].forward);
    if (!times[i].backward_weight.empty()) {
      profiles[i].backward_input = i > 0 ? median(times[i].backward_input) : 0;
      profiles[i].backward_weight = median(times[i].backward_weight);
    }
    for (const auto& [name, parameter] : model.layer(static_cast<int>(i))->named_parameters()) {
      profiles[i].parameter_bytes += static_cast<std::int64_t>(parameter.bytes());
    }
  }
  return profiles;
}

Costs costs_of_stages(const std::vector<LayerProfile>& layers, const Split& split) {
  Costs costs = Costs::uniform(static_cast<int>(split.size()), 0, 0, 0);
  std::size_t layer = 0;
  for (std::size_t s = 0; s < split.size(); ++s) {
    for (int i = 0; i < split[s]; ++i, ++layer) {
      const LayerProfile& one = layers.at(layer);
      costs.forward[s] += one.forward;
      costs.backward[s] += one.backward_input + one.backward_weight;
      costs.backward_input[s] += one.backward_input;
      costs.backward_weight[s] += one.backward_weight;
    }
  }
  return costs;
}

}  // namespace stagecoach
