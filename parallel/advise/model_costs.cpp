#include "parallel/advise/model_costs.h"

#include <utility>

#include "core/autograd/backward.h"
#include "core/base/on_exit.h"
#include "core/ops.h"
#include "parallel/comm/clock.h"
#include "parallel/training/epoch_meter.h"

namespace stagecoach {
namespace {

constexpr Device kPlanned{DeviceType::meta};

template <class Work>
double seconds_on(Clock& clock, const Work& work) {
  const double begin = clock.now();
  work();
  return clock.now() - begin;
}

/// Runs one forward, and returns the seconds of the backward after it.
double backward_seconds(Module& layer, const Shape& input, bool is_first, Clock& clock, double& begin) {
  Tensor x = Tensor::zeros(input, DType::float32, kPlanned);
  x.set_requires_grad(!is_first);
  const Tensor y = layer.forward(x);
  if (!y.requires_grad()) {
    return 0;
  }
  const Tensor grad = Tensor::full(y.shape(), 1, y.dtype(), kPlanned);
  begin = clock.now();
  return seconds_on(clock, [&] { backward(y, grad); });
}

LayerSteps steps_of(Module& layer, const Shape& input, bool is_first, Clock& clock,
                    const MakeOptimizer& make_optimizer) {
  NamedTensors parameters = layer.named_parameters();
  LayerSteps steps;
  if (parameters.empty()) {
    return steps;
  }
  double begin = 0;
  const auto run = [&] { return backward_seconds(layer, input, is_first, clock, begin); };
  const double alone = run();
  steps.accumulate = run() - alone;
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(parameters);
  steps.update = seconds_on(clock, [&] { optimizer->step(); });
  optimizer->zero_grad();
  // As Buckets::take_gradient does.
  std::vector<double>* arrivals = &steps.only_arrivals;
  for (auto& [name, parameter] : parameters) {
    parameter.set_gradient_hook(
        [&, bucket = Tensor::empty(parameter.shape(), DType::float32, kPlanned)](Tensor& leaf) mutable {
          if (!leaf.grad().is_same(bucket)) {
            bucket.copy_from(leaf.grad());
            leaf.set_grad(bucket);
            steps.gradient_bytes.push_back(static_cast<std::int64_t>(bucket.bytes()));
          }
          arrivals->push_back(clock.now() - begin);
        });
  }
  steps.copy = run() - alone;
  arrivals = &steps.last_arrivals;
  run();
  for (auto& [name, parameter] : parameters) {
    parameter.set_gradient_hook({});
  }
  return steps;
}

/// Sets what happens before the first layer and after the last one, whose output has the shape `output`.
void set_ends(const Shape& input, const Shape& output, const LossFunction& loss, Clock& clock, ModelCosts& costs) {
  const Tensor images = Tensor::empty(input, DType::uint8, kPlanned);
  const Tensor labels = Tensor::empty({input[0]}, DType::int32, kPlanned);
  Tensor logits = Tensor::zeros(output, DType::float32, kPlanned);
  logits.set_requires_grad(true);
  EpochSums sums(kPlanned);
  Tensor predictions;
  Tensor value;
  Tensor scale;
  costs.input_bytes = input.numel() * static_cast<std::int64_t>(sizeof(float));
  costs.input = seconds_on(clock, [&] { normalize(images); });
  costs.loss = seconds_on(clock, [&] { value = loss(logits, labels, &predictions); });
  costs.sums = seconds_on(clock, [&] { sums.add(value, predictions, labels); });
  costs.scale = seconds_on(clock, [&] { scale = Tensor::full({}, 1, DType::float32, kPlanned); });
  costs.loss_backward = seconds_on(clock, [&] { backward(value, scale); });
}

}  // namespace

ModelCosts costs_of_profile(std::vector<LayerProfile> layers) {
  ModelCosts costs;
  for (const LayerProfile& layer : layers) {
    const double end = layer.backward(Stage::Recompute::no);
    costs.steps.push_back({.gradient_bytes = {layer.parameter_bytes}, .only_arrivals = {end}, .last_arrivals = {end}});
  }
  costs.layers = std::move(layers);
  return costs;
}

ModelCosts modelled_costs(Sequential& model, const Shape& input, const DeviceModel& device, const LossFunction& loss,
                          const MakeOptimizer& make_optimizer) {
  const std::unique_ptr<Clock> clock = make_clock(ClockKind::modelled, kPlanned, {}, device);
  ModelCosts costs{.layers = profile_layers(model, input, kPlanned, 1, *clock)};
  Shape shape = input;
  for (int i = 0; i < model.size(); ++i) {
    Module& layer = *model.layer(i);
    layer.materialize(0, kPlanned, DType::float32, model.name(i) + ".");
    const OnExit deallocate([&] { layer.deallocate(); });
    costs.steps.push_back(steps_of(layer, shape, i == 0, *clock, make_optimizer));
    shape = layer.output_shape(shape);
  }
  set_ends(input, shape, loss, *clock, costs);
  return costs;
}

}  // namespace stagecoach
