#include "tests/labs/lab7_steps.h"

#include <fmt/format.h>

#include <numeric>

#include "core/autograd/node.h"
#include "core/ops.h"
#include "core/random.h"
#include "nn/layers.h"
#include "nn/optimizer.h"
#include "tests/labs/class_settings.h"

namespace stagecoach::labs::lab7 {
namespace {

constexpr std::int64_t kFeatures = 5;
constexpr std::int64_t kClasses = 4;

class ProbeNode final : public Node {
 public:
  ProbeNode(const Tensor& x, int stage, StageCalls* calls) : Node("probe", {x}), stage_(stage), calls_(calls) {}
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
    calls_->backwards.push_back({stage_, grad.size(0)});
    return {grad};
  }

 private:
  int stage_;
  StageCalls* calls_;
};

/// The last layer of a stage, which notes its calls.
class Probe final : public Module {
 public:
  Probe(int stage, StageCalls& calls) : stage_(stage), calls_(&calls) {}
  Tensor forward(const Tensor& x) override {
    StageCall& call = calls_->forwards.emplace_back(StageCall{stage_, x.size(0)});
    if (is_asynchronous(x.device())) {
      call.end = mark_point({x.device(), Stream::kCompute});
    }
    return recorded<ProbeNode>(x.alias(x.shape(), x.offset()), {&x}, x, stage_, calls_);
  }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  int stage_;
  StageCalls* calls_;
};

/// No two stages have inputs of the same width, so a tensor that enters the wrong stage does not fit.
std::vector<std::shared_ptr<Sequential>> make_layers(const std::vector<Device>& devices, StageCalls& calls) {
  std::vector<std::shared_ptr<Sequential>> stages;
  const int count = static_cast<int>(devices.size());
  for (int s = 0; s < count; ++s) {
    const bool is_last = s + 1 == count;
    auto& layers = stages.emplace_back(std::make_shared<Sequential>());
    layers->add(fmt::format("fc{}", s),
                std::make_shared<Linear>(kFeatures + s, is_last ? kClasses : kFeatures + s + 1));
    if (!is_last) {
      layers->add(fmt::format("relu{}", s), std::make_shared<ReLU>());
    }
    layers->add(fmt::format("probe{}", s), std::make_shared<Probe>(s, calls));
    layers->materialize(class_seed(), devices[static_cast<std::size_t>(s)]);
  }
  return stages;
}

NamedTensors parameters_of(const std::vector<std::shared_ptr<Sequential>>& stages) {
  NamedTensors all;
  for (const auto& layers : stages) {
    const NamedTensors parameters = layers->named_parameters();
    all.insert(all.end(), parameters.begin(), parameters.end());
  }
  return all;
}

/// Trains for some steps, each by `run_step`, which returns the loss.
std::vector<Trained> train(const Case& training, int steps, const NamedTensors& parameters,
                           const std::function<Tensor(const Data& data)>& run_step) {
  Sgd optimizer(parameters, {.learning_rate = 0.25, .momentum = 0.5});
  std::vector<Trained> results;
  for (int step = 0; step < steps; ++step) {
    Trained& result = results.emplace_back();
    result.loss = static_cast<float>(run_step(data_of(training, step)).item());
    for (const auto& [name, parameter] : parameters) {
      result.gradients[name] = parameter.grad().defined() ? parameter.grad().to_vector<float>() : std::vector<float>();
    }
    optimizer.step();
    optimizer.zero_grad();
    for (const auto& [name, parameter] : parameters) {
      result.weights[name] = parameter.to_vector<float>();
    }
  }
  return results;
}

}  // namespace

std::vector<Device> devices_of(int stages) {
  std::vector<Device> devices;
  for (int s = 1; s <= stages; ++s) {
    devices.push_back({DeviceType::cpu, s});
  }
  return devices;
}

Data data_of(const Case& training, int step) {
  Data data;
  for (std::size_t i = 0; i < training.sizes.size(); ++i) {
    const std::int64_t size = training.sizes[i];
    const Philox random(class_seed(), fmt::format("lab 7: micro-batch {} of step {}", i, step));
    std::vector<float> pixels(static_cast<std::size_t>(size * kFeatures));
    std::vector<std::int32_t> labels(static_cast<std::size_t>(size));
    for (std::size_t j = 0; j < pixels.size(); ++j) {
      pixels[j] = static_cast<float>(random.normal(j));
    }
    for (std::size_t j = 0; j < labels.size(); ++j) {
      labels[j] = static_cast<std::int32_t>(random.below(j, kClasses));
    }
    data.images.push_back(Tensor::from(pixels, {size, kFeatures}));
    data.labels.push_back(Tensor::from(labels, {size}));
  }
  return data;
}

std::vector<Trained> train_on_one_device(const Case& training, int steps, Weighting weighting, Order order) {
  StageCalls calls;
  const auto layers = make_layers(std::vector<Device>(static_cast<std::size_t>(training.stages)), calls);
  const auto microbatches = static_cast<double>(training.sizes.size());
  const auto samples = static_cast<double>(std::accumulate(training.sizes.begin(), training.sizes.end(), 0L));
  return train(training, steps, parameters_of(layers), [&](const Data& data) {
    Tensor sum;
    for (std::size_t k = 0; k < data.images.size(); ++k) {
      const std::size_t i = order == Order::ascending ? k : data.images.size() - 1 - k;
      Tensor x = data.images[i];
      for (const auto& stage : layers) {
        x = stage->forward(x);
      }
      const Tensor loss = cross_entropy(x, data.labels[i], Reduction::sum);
      const double share = weighting == Weighting::sum ? 1
                           : weighting == Weighting::by_samples
                               ? 1 / samples
                               : 1 / microbatches / static_cast<double>(data.images[i].size(0));
      backward(loss, Tensor::full({}, share));
      sum = sum.defined() ? add(sum, loss.detach()) : loss.detach();
    }
    return sum;
  });
}

PlacedStages::PlacedStages(const Case& training, StageCalls& calls)
    : devices(devices_of(training.stages)),
      layers(make_layers(devices, calls)),
      stages(layers.begin(), layers.end()),
      asynchronous(devices) {
  set_case(fmt::format("{} stages and micro-batches of {} samples", training.stages, fmt::join(training.sizes, ", ")));
}

Tensor PlacedStages::step(const Answer& answer, const Data& data) {
  return answer.tick_step({.stages = stages, .devices = devices, .images = data.images, .labels = data.labels});
}

std::vector<Trained> train_with(const Answer& answer, const Case& training, int steps, StageCalls& calls) {
  PlacedStages placed(training, calls);
  return train(training, steps, parameters_of(placed.layers), [&](const Data& data) {
    Tensor loss = placed.step(answer, data);
    if (!loss.defined() || loss.device() != placed.devices.back() || loss.dims() != 0) {
      throw Failed(fmt::format("the sum of the losses, [] on {}{}", to_string(placed.devices.back()), for_case()),
                   describe(loss), kStep);
    }
    return loss;
  });
}

}  // namespace stagecoach::labs::lab7
