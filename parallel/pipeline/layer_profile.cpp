#include "parallel/pipeline/layer_profile.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "core/allocator.h"
#include "core/autograd/backward.h"
#include "core/autograd/node.h"
#include "core/base/error.h"
#include "core/base/median.h"
#include "core/base/on_exit.h"
#include "core/stream.h"

namespace stagecoach {
namespace {

constexpr std::chrono::seconds kLongest(2);

double seconds_of(Clock& clock, Device device, const std::function<void()>& work) {
  const double start = clock.now();
  work();
  synchronize({device, Stream::kCompute});
  return clock.now() - start;
}

struct Measured {
  std::vector<double> forward;
  std::vector<double> backward_input;
  std::vector<double> backward_weight;
};

/// Times one forward and backward of a layer.
void time_layer(Module& layer, const Tensor& x, Clock& clock, Measured& times) {
  const Device device = x.device();
  Tensor y;
  times.forward.push_back(seconds_of(clock, device, [&] { y = layer.forward(x); }));
  if (!y.requires_grad()) {
    return;  // the first layer, without weights: no gradient is needed
  }
  const Tensor grad = Tensor::full(y.shape(), 1, y.dtype(), device);
  DeferredGradients weights;
  std::vector<Tensor> inputs;
  if (x.requires_grad()) {
    inputs.push_back(x);
  }
  times.backward_input.push_back(seconds_of(clock, device, [&] { weights = backward_inputs(y, grad, inputs); }));
  times.backward_weight.push_back(seconds_of(clock, device, [&] { weights.run(); }));
  for (auto [name, parameter] : layer.named_parameters()) {
    parameter.zero_grad();
  }
}

/// Measures the median times of a layer for inputs such as `input`.
void measure_times(Module& layer, const Tensor& input, bool first, Clock& clock,
                   std::chrono::steady_clock::duration longest, int repeats, LayerProfile& profile) {
  Measured times;
  const auto start = std::chrono::steady_clock::now();
  for (int repeat = 0; repeat <= repeats; ++repeat) {
    if (repeat >= 2 && std::chrono::steady_clock::now() - start > longest) {
      break;
    }
    if (repeat == 1) {
      times = {};  // the first run warms up the caches and does not count
    }
    Tensor x = input.detach();
    x.set_requires_grad(!first);
    time_layer(layer, x, clock, times);
  }
  profile.forward = *median(times.forward);
  if (!times.backward_weight.empty()) {
    profile.backward_input = first ? 0 : *median(times.backward_input);
    profile.backward_weight = *median(times.backward_weight);
  }
}

/// Stands in for the node that produced a tensor in the middle of a model, so that no graph keeps the tensor as a leaf
/// that accumulates a gradient.
class EarlierLayer final : public Node {
 public:
  EarlierLayer() : Node("earlier layer", {}) {}
  Gradients backward(const Tensor&, const NeedsInputGrad&) override { return {}; }
};

/// Runs a layer forward and measures the memory in use while it drops one tensor after another. `input_is_kept` says
/// whether something before the layer keeps the layer's input. Returns whether this layer or one before it keeps its
/// output.
bool measure_memory(Module& layer, Tensor x, bool first, bool input_is_kept, LayerProfile& profile) {
  const Device device = x.device();
  const auto in_use = [&] { return static_cast<std::int64_t>(allocator(device).stats().current_bytes); };
  if (!first) {
    x.set_grad_node(std::make_shared<EarlierLayer>());
  }
  const std::int64_t before = in_use();
  Tensor y = layer.forward(x);
  const std::int64_t with_both = in_use();
  const bool is_view = y.storage() == x.storage();
  x = {};
  const std::int64_t without_input = in_use();
  profile.kept_bytes = with_both - before;
  profile.freed_bytes = input_is_kept ? 0 : with_both - without_input;
  profile.output_bytes = static_cast<std::int64_t>(y.bytes());
  const std::shared_ptr<Node> graph = y.grad_node();
  y = {};
  return in_use() == without_input || (is_view && input_is_kept);
}

/// Returns what a micro-batch keeps between the two parts of its backward, its input included if it is needed. `input`
/// makes an input.
std::int64_t measure_deferred(Module& layer, const std::function<Tensor()>& input, bool first) {
  const Device device = input().device();
  const auto in_use = [&] { return static_cast<std::int64_t>(allocator(device).stats().current_bytes); };
  const std::int64_t before = in_use();
  DeferredGradients weights;
  {
    Tensor x = input();
    x.set_requires_grad(!first);
    const Tensor y = layer.forward(x);
    if (y.requires_grad()) {
      const std::vector<Tensor> inputs(first ? 0 : 1, x);
      weights = backward_inputs(y, Tensor::full(y.shape(), 1, y.dtype(), device), inputs);
      x.zero_grad();
    }
  }
  return in_use() - before;
}

/// Measures the memory that the layer takes in addition to its input, the tensors kept for the backward, its weights
/// and their gradients: intermediate gradients, and the workspace of its operations.
std::int64_t measure_workspace(Module& layer, const Tensor& input, bool first, std::int64_t kept_bytes) {
  Allocator& memory = allocator(input.device());
  std::int64_t workspace = 0;
  for (int microbatch = 0; microbatch < 2; ++microbatch) {  // in the second run the gradients are allocated already
    Tensor x = input.detach();
    x.set_requires_grad(!first);
    memory.reset_peak();
    const auto before = static_cast<std::int64_t>(memory.stats().current_bytes);
    const Tensor y = layer.forward(x);
    if (y.requires_grad()) {
      backward(y, Tensor::full(y.shape(), 1, y.dtype(), y.device()));
    }
    workspace = static_cast<std::int64_t>(memory.stats().peak_bytes) - before - kept_bytes;
  }
  return std::max<std::int64_t>(workspace, 0);
}

}  // namespace

std::vector<LayerProfile> profile_layers(Sequential& model, const Shape& input, Device device, int repeats, DType type,
                                         DType weights) {
  return profile_layers(model, input, device, repeats, *make_clock(ClockKind::wall, device, {}), type, weights);
}

std::vector<LayerProfile> profile_layers(Sequential& model, const Shape& input, Device device, int repeats,
                                         Clock& clock, DType type, DType weights) {
  STAGECOACH_CHECK(repeats >= 1, "profile: expected at least 1 repeat, got {}", repeats);
  std::vector<LayerProfile> profiles(static_cast<std::size_t>(model.size()));
  Shape shape = input;
  bool input_is_kept = true;  // by the owner of the micro-batch
  for (int i = 0; i < model.size(); ++i) {
    const bool first = i == 0;
    const BatchScope scope(BatchPosition{});  // for layers that draw random numbers
    LayerProfile& profile = profiles[static_cast<std::size_t>(i)];
    Module& layer = *model.layer(i);
    {
      layer.materialize(0, device, weights, model.name(i) + ".");
      const OnExit deallocate([&] { layer.deallocate(); });
      profile.parameter_bytes = parameter_count(layer) * static_cast<std::int64_t>(size_of(weights));
      const DType dtype = first ? type : weights;
      const bool is_integer = dtype == DType::int32 || dtype == DType::uint8;
      const auto zeros = [&] { return Tensor::zeros(shape, dtype, device); };
      {
        const Tensor numbers = device.type == DeviceType::meta || is_integer
                                   ? zeros()
                                   : Init::uniform(1).make(shape, dtype, 0, "input").to(device);
        measure_times(layer, numbers, first, clock, kLongest / model.size(), repeats, profile);
      }
      input_is_kept = measure_memory(layer, zeros(), first, input_is_kept, profile);
      profile.deferred_bytes = measure_deferred(layer, zeros, first);
      profile.workspace_bytes = measure_workspace(layer, zeros(), first, profile.kept_bytes);
    }
    allocator(device).empty_cache();
    shape = layer.output_shape(shape);
  }
  return profiles;
}

Tensor to_bytes(const std::vector<LayerProfile>& layers) {
  static_assert(std::is_trivially_copyable_v<LayerProfile>);
  constexpr auto kEach = static_cast<std::int64_t>(sizeof(LayerProfile));
  Tensor bytes = Tensor::empty({static_cast<std::int64_t>(layers.size()), kEach}, DType::uint8);
  std::memcpy(bytes.raw_mutable_data(), layers.data(), bytes.bytes());
  return bytes;
}

std::vector<LayerProfile> layers_from(const Tensor& bytes) {
  std::vector<LayerProfile> layers(static_cast<std::size_t>(bytes.size(0)));
  std::memcpy(layers.data(), bytes.raw_data(), bytes.bytes());
  return layers;
}

namespace {

/// Calls see(stage, i, layer) for each layer, where i counts the layers of a stage.
template <class See>
void for_each_layer(const std::vector<LayerProfile>& layers, const Split& split, const See& see) {
  std::size_t layer = 0;
  for (std::size_t stage = 0; stage < split.size(); ++stage) {
    for (int i = 0; i < split[stage]; ++i) {
      see(stage, i, layers.at(layer++));
    }
  }
}

}  // namespace

std::vector<double> seconds_of_layers(const std::vector<LayerProfile>& layers, Stage::Recompute recompute) {
  std::vector<double> seconds;
  for (const LayerProfile& layer : layers) {
    seconds.push_back(layer.seconds(recompute));
  }
  return seconds;
}

Costs costs_of_stages(const std::vector<LayerProfile>& layers, const Split& split, Stage::Recompute recompute) {
  Costs costs = Costs::uniform(static_cast<int>(split.size()), 0, 0, 0);
  for_each_layer(layers, split, [&](std::size_t stage, int, const LayerProfile& layer) {
    costs.forward[stage] += layer.forward;
    costs.backward[stage] += layer.backward_input + layer.backward_weight;
    costs.backward_input[stage] += layer.backward_input;
    costs.backward_weight[stage] += layer.backward_weight;
  });
  return recompute == Stage::Recompute::yes ? with_recompute(std::move(costs)) : costs;
}

std::vector<double> weight_bytes_of_stages(const std::vector<LayerProfile>& layers, const Split& split) {
  std::vector<double> bytes(split.size());
  for_each_layer(layers, split, [&](std::size_t stage, int, const LayerProfile& layer) {
    bytes[stage] += static_cast<double>(layer.parameter_bytes);
  });
  return bytes;
}

std::vector<double> workspace_bytes_of_stages(const std::vector<LayerProfile>& layers, const Split& split) {
  std::vector<double> bytes(split.size());
  for_each_layer(layers, split, [&](std::size_t stage, int, const LayerProfile& layer) {
    bytes[stage] = std::max(bytes[stage], static_cast<double>(layer.workspace_bytes));
  });
  return bytes;
}

std::vector<double> bytes_of_stages(const std::vector<LayerProfile>& layers, const Split& split,
                                    std::int64_t input_bytes, Stage::Recompute recompute) {
  std::vector<double> bytes(split.size());
  bytes.at(0) = static_cast<double>(input_bytes);
  for_each_layer(layers, split, [&](std::size_t stage, int i, const LayerProfile& layer) {
    if (recompute == Stage::Recompute::no) {
      const std::int64_t freed = i > 0 ? layer.freed_bytes : 0;  // the input of the stage is not freed
      bytes[stage] += static_cast<double>(layer.kept_bytes - freed);
    } else if (i + 1 == split[stage]) {
      bytes[stage] += static_cast<double>(layer.output_bytes);
    }
  });
  return bytes;
}

std::vector<double> deferred_bytes_of_stages(const std::vector<LayerProfile>& layers, const Split& split,
                                             std::int64_t input_bytes) {
  std::vector<double> bytes(split.size());
  for_each_layer(layers, split, [&](std::size_t stage, int, const LayerProfile& layer) {
    bytes[stage] += static_cast<double>(layer.deferred_bytes);
  });
  bytes.at(0) = bytes_of_stages(layers, split, input_bytes, Stage::Recompute::no)[0];
  return bytes;
}

}  // namespace stagecoach
