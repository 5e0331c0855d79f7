#include "parallel/advise/model_costs.h"

#include <utility>

#include "core/autograd/backward.h"
#include "core/autograd/node.h"
#include "core/base/on_exit.h"
#include "core/ops.h"
#include "datasets/loader.h"
#include "nn/batch_position.h"
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

/// Stands in for the layer before: it takes the gradient of a layer's input, as in the middle of a stage.
class PreviousLayer final : public Node {
 public:
  PreviousLayer() : Node("previous layer", {}) {}
  Gradients backward(const Tensor&, const NeedsInputGrad&) override { return {}; }
};

/// Runs one forward, and returns the seconds of the backward after it.
double backward_seconds(Module& layer, const Tensor& input, bool is_first, Clock& clock, double& begin) {
  Tensor x = input.detach();
  if (!is_first) {
    x.set_grad_node(std::make_shared<PreviousLayer>());
  }
  const Tensor y = layer.forward(x);
  if (!y.requires_grad()) {
    return 0;
  }
  const Tensor grad = Tensor::full(y.shape(), 1, y.dtype(), kPlanned);
  begin = clock.now();
  return seconds_on(clock, [&] { backward(y, grad); });
}

/// Measures a layer, and corrects its profile.
LayerSteps steps_of(Module& layer, const Tensor& input, bool is_first, Clock& clock,
                    const MakeOptimizer& make_optimizer, LayerProfile& profile) {
  NamedTensors parameters = layer.named_parameters();
  LayerSteps steps;
  double begin = 0;
  const auto run = [&] { return backward_seconds(layer, input, is_first, clock, begin); };
  const double alone = run();
  if (!is_first) {  // a profile's layer has a leaf as its input
    steps.begins_stage = profile.backward_input + profile.backward_weight - alone;
    profile.backward_input -= steps.begins_stage;
  }
  if (parameters.empty()) {
    return steps;
  }
  steps.accumulate = run() - alone;
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(parameters);
  steps.update = seconds_on(clock, [&] { optimizer->step(); });
  steps.clone = seconds_on(clock, [&] {  // as WeightVersions does
    for (const auto& [name, parameter] : parameters) {
      static_cast<void>(parameter.detach().clone());
    }
  });
  for (auto& [name, parameter] : parameters) {  // also a tied copy, which is not the optimizer's
    parameter.zero_grad();
  }
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
void set_ends(const Tensor& inputs, const Tensor& targets, const Shape& output, const LossFunction& loss, Clock& clock,
              ModelCosts& costs) {
  Tensor logits = Tensor::zeros(output, DType::float32, kPlanned);
  logits.set_requires_grad(true);
  EpochSums sums(kPlanned);
  Tensor predictions;
  Tensor value;
  Tensor scale;
  Tensor x;
  costs.input = seconds_on(clock, [&] { x = model_input(inputs); });
  costs.input_bytes = static_cast<std::int64_t>(x.bytes());
  costs.loss = seconds_on(clock, [&] { value = loss(logits, targets, &predictions); });
  costs.sums = seconds_on(clock, [&] { sums.add(value, predictions, targets); });
  costs.scale = seconds_on(clock, [&] { scale = Tensor::full({}, 1, DType::float32, kPlanned); });
  costs.loss_backward = seconds_on(clock, [&] { backward(value, scale); });
}

/// Updates all layers at once. Several share a launch of a kernel then, which the layers' own updates do not. Ties are
/// what is left out by the optimizer, and what its step then does besides.
void share_launches(Sequential& model, Clock& clock, const MakeOptimizer& make_optimizer, ModelCosts& costs) {
  model.materialize(0, kPlanned);
  const OnExit deallocate([&] { model.deallocate(); });
  const std::unique_ptr<Optimizer> tied = make_optimizer(model.named_parameters());
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(tied->parameters());
  for (auto [name, parameter] : model.named_parameters()) {
    parameter.set_grad(Tensor::empty(parameter.shape(), DType::float32, kPlanned));
    costs.tied_bytes += static_cast<double>(parameter.bytes());
  }
  for (const auto& [name, parameter] : tied->parameters()) {
    costs.tied_bytes -= static_cast<double>(parameter.bytes());
  }
  const double together = seconds_on(clock, [&] { optimizer->step(); });
  costs.tied_update = costs.tied_bytes > 0 ? seconds_on(clock, [&] { tied->step(); }) - together : 0;
  double apart = 0;
  int updated = 0;
  for (const LayerSteps& layer : costs.steps) {
    apart += layer.update;
    updated += layer.update > 0 ? 1 : 0;
  }
  costs.update = updated > 1 ? (apart - together) / (updated - 1) : 0;
  for (LayerSteps& layer : costs.steps) {
    layer.update -= layer.update > 0 ? costs.update : 0;
  }
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

ModelCosts modelled_costs(Sequential& model, const Tensor& inputs, const Tensor& targets, const DeviceModel& device,
                          const LossFunction& loss, const MakeOptimizer& make_optimizer) {
  const BatchScope position(BatchPosition{});  // for layers that draw random numbers
  Tensor input = model_input(inputs);
  const std::unique_ptr<Clock> clock = make_clock(ClockKind::modelled, kPlanned, {}, device);
  ModelCosts costs{.layers = profile_layers(model, input.shape(), kPlanned, 1, *clock, input.dtype())};
  for (int i = 0; i < model.size(); ++i) {
    Module& layer = *model.layer(i);
    layer.materialize(0, kPlanned, DType::float32, model.name(i) + ".");
    const OnExit deallocate([&] { layer.deallocate(); });
    costs.steps.push_back(
        steps_of(layer, input, i == 0, *clock, make_optimizer, costs.layers[static_cast<std::size_t>(i)]));
    input = Tensor::zeros(layer.output_shape(input.shape()), DType::float32, kPlanned);
  }
  share_launches(model, *clock, make_optimizer, costs);
  set_ends(inputs, targets, input.shape(), loss, *clock, costs);
  return costs;
}

}  // namespace stagecoach
