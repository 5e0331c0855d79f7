#pragma once
/// @file
/// What a model costs on one rank: the input of the advisor.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/device_model.h"
#include "nn/loss_function.h"
#include "nn/optimizer.h"
#include "nn/sequential.h"
#include "parallel/pipeline/layer_profile.h"
#include "parallel/tensor_parallel/tensor_group.h"

namespace stagecoach {

/// What a layer does besides the forwards and backwards of its profile. Everything but the bytes is in seconds; what is
/// not known takes none.
struct LayerSteps {
  double begins_stage = 0;  ///< by which its backward takes longer as the first of a stage, whose input is a leaf
  double accumulate = 0;    ///< by which a backward takes longer that adds to earlier gradients
  double update = 0;        ///< of the optimizer's step, beside ModelCosts::update
  double copy = 0;          ///< of all gradients into buckets
  double clone = 0;         ///< of all weights, for one more version of them
  std::vector<std::int64_t> gradient_bytes = {};  ///< of each parameter, in the order in which gradients arrive
  /// When each is complete and in its bucket, since the backward of the layer began: where it is the step's only
  /// backward, and where it adds to earlier gradients, which are in the bucket already.
  std::vector<double> only_arrivals = {};
  std::vector<double> last_arrivals = {};
};

/// The costs of a model for micro-batches of one size, on one rank of a tensor-parallel group.
struct ModelCosts {
  std::vector<LayerProfile> layers = {};
  std::vector<LayerSteps> steps = {};                 ///< [layers]
  std::vector<std::vector<Exchange>> exchanges = {};  ///< [layers], with the tensor-parallel group; empty: none
  std::int64_t input_bytes = 0;                       ///< of a micro-batch, as the first layer gets it
  double update = 0;                                  ///< seconds of each optimizer's step, whatever its layers
  double tied_bytes = 0;                              ///< of weights of the last layer that are those of the first
  double tied_update = 0;                             ///< seconds by which a step takes longer on a rank with both
  double input = 0;                                   ///< seconds that make it of a micro-batch as it is loaded
  double loss = 0;                                    ///< seconds of the loss
  double sums = 0;                                    ///< seconds that add up losses and correct predictions
  double loss_backward = 0;                           ///< seconds of the loss's backward
  double scale = 0;                                   ///< seconds that make the gradient with which a backward begins
};

/// Returns the costs of layers of which only the profile is known: all gradients of a layer arrive with its end.
ModelCosts costs_of_profile(std::vector<LayerProfile> layers);

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(NamedTensors parameters)>;

/// Returns what `model`, without memory, takes on the modelled `device` for a micro-batch of `inputs`, as a loader
/// makes them, and their targets, both on the device `meta`. Nothing is computed, so any model fits.
ModelCosts modelled_costs(Sequential& model, const Tensor& inputs, const Tensor& targets, const DeviceModel& device,
                          const LossFunction& loss, const MakeOptimizer& make_optimizer);

}  // namespace stagecoach
