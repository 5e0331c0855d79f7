#include "parallel/pipeline/layer_profile.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "core/allocator.h"
#include "core/autograd/backward.h"
#include "core/error.h"
#include "core/stream.h"

namespace stagecoach {
namespace {

constexpr std::chrono::seconds kLongest(2);
constexpr std::int64_t kNumbers = 7;  // of a LayerProfile

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

/// One layer, forward and backward. Gives the output, without history.
Tensor time_layer(Module& layer, const Tensor& x, Measured& times) {
  const Device device = x.device();
  Tensor y;
  times.forward.push_back(seconds_of(device, [&] { y = layer.forward(x); }));
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
  for (auto [name, parameter] : layer.named_parameters()) {
    parameter.zero_grad();
  }
  return output;
}

/// Runs all layers forward in one graph, and looks at the memory in use after each.
void measure_memory(Sequential& model, const Tensor& input, std::vector<LayerProfile>& profiles) {
  const auto in_use = [&] { return static_cast<std::int64_t>(allocator(input.device()).stats().current_bytes); };
  Tensor x = input.detach();
  for (int i = 0; i < model.size(); ++i) {
    LayerProfile& profile = profiles[static_cast<std::size_t>(i)];
    const std::int64_t before = in_use();
    Tensor y = model.layer(i)->forward(x);
    const std::int64_t after = in_use();
    x = std::move(y);
    profile.kept_bytes = after - before;
    profile.freed_bytes = after - in_use();
    profile.output_bytes = static_cast<std::int64_t>(x.bytes());
    for (const auto& [name, parameter] : model.layer(i)->named_parameters()) {
      profile.parameter_bytes += static_cast<std::int64_t>(parameter.bytes());
    }
  }
}

}  // namespace

std::vector<LayerProfile> profile_layers(Sequential& model, const Tensor& input, int repeats) {
  STAGECOACH_CHECK(repeats >= 1, "profile: {} repeats", repeats);
  const auto layers = static_cast<std::size_t>(model.size());
  std::vector<LayerProfile> profiles(layers);
  std::vector<Measured> times(layers);
  const auto start = std::chrono::steady_clock::now();
  for (int repeat = 0; repeat <= repeats; ++repeat) {  // the first one fills the caches, and does not count
    if (repeat >= 2 && std::chrono::steady_clock::now() - start > kLongest) {
      break;
    }
    Tensor x = input.detach();
    for (std::size_t i = 0; i < layers; ++i) {
      if (repeat == 1) {
        times[i] = {};
      }
      Module& layer = *model.layer(static_cast<int>(i));
      if (i > 0) {
        x.set_requires_grad(true);
      }
      x = time_layer(layer, x, times[i]);
    }
  }
  for (std::size_t i = 0; i < layers; ++i) {
    profiles[i].forward = median(times[i].forward);
    if (!times[i].backward_weight.empty()) {
      profiles[i].backward_input = i > 0 ? median(times[i].backward_input) : 0;
      profiles[i].backward_weight = median(times[i].backward_weight);
    }
  }
  measure_memory(model, input, profiles);
  return profiles;
}

Tensor numbers_of(const std::vector<LayerProfile>& layers) {
  std::vector<double> numbers;
  for (const LayerProfile& layer : layers) {
    for (const double number : {layer.forward, layer.backward_input, layer.backward_weight}) {
      numbers.push_back(number);
    }
    for (const std::int64_t bytes : {layer.kept_bytes, layer.freed_bytes, layer.output_bytes, layer.parameter_bytes}) {
      numbers.push_back(static_cast<double>(bytes));
    }
  }
  return Tensor::from(numbers, {static_cast<std::int64_t>(layers.size()), kNumbers});
}

std::vector<LayerProfile> layers_from(const Tensor& numbers) {
  const auto all = numbers.to_vector<double>();
  std::vector<LayerProfile> layers;
  for (std::size_t i = 0; i < all.size(); i += kNumbers) {
    const auto bytes = [&](std::size_t which) { return static_cast<std::int64_t>(all[i + which]); };
    layers.push_back({.forward = all[i],
                      .backward_input = all[i + 1],
                      .backward_weight = all[i + 2],
                      .kept_bytes = bytes(3),
                      .freed_bytes = bytes(4),
                      .output_bytes = bytes(5),
                      .parameter_bytes = bytes(6)});
  }
  return layers;
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

std::vector<double> weight_bytes_of_stages(const std::vector<LayerProfile>& layers, const Split& split) {
  std::vector<double> bytes;
  std::size_t layer = 0;
  for (const int count : split) {
    bytes.push_back(0);
    for (int i = 0; i < count; ++i) {
      bytes.back() += static_cast<double>(layers.at(layer++).parameter_bytes);
    }
  }
  return bytes;
}

std::vector<double> bytes_of_stages(const std::vector<LayerProfile>& layers, const Split& split,
                                    std::int64_t input_bytes, Stage::Recompute recompute) {
  std::vector<double> bytes;
  std::size_t layer = 0;
  for (const int count : split) {
    std::int64_t kept = bytes.empty() ? input_bytes : 0;
    for (int i = 0; i < count; ++i, ++layer) {
      const LayerProfile& one = layers.at(layer);
      if (recompute == Stage::Recompute::no) {
        kept += one.kept_bytes - (i > 0 ? one.freed_bytes : 0);  // what enters the stage stays
      } else if (i + 1 == count) {
        kept += one.output_bytes;
      }
    }
    bytes.push_back(static_cast<double>(kept));
  }
  return bytes;
}

}  // namespace stagecoach
