#pragma once
/// @file
/// Measures the costs of each layer of a model on one device: time, memory, and the bytes that it would send.

#include <cstdint>
#include <vector>

#include "nn/sequential.h"
#include "parallel/comm/clock.h"
#include "parallel/pipeline/split.h"
#include "parallel/pipeline/stage.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

struct LayerProfile {
  double forward = 0;                ///< seconds for one micro-batch
  double backward_input = 0;         ///< seconds for the gradient of its input; 0 in the first layer, which needs none
  double backward_weight = 0;        ///< seconds for the gradients of its parameters
  std::int64_t kept_bytes = 0;       ///< what its forward keeps in memory for the backward, including its output
  std::int64_t freed_bytes = 0;      ///< the part of its input that nothing needs after the layer has run
  std::int64_t output_bytes = 0;     ///< what it passes to the next layer
  std::int64_t parameter_bytes = 0;  ///< its weights
  std::int64_t workspace_bytes = 0;  ///< the most that its forward and backward take in addition
  std::int64_t deferred_bytes = 0;   ///< what it keeps between its backward_input and its backward_weight

  /// Returns the seconds of its backward. With recomputation that includes a second forward.
  double backward(Stage::Recompute recompute) const {
    return backward_input + backward_weight + (recompute == Stage::Recompute::yes ? forward : 0);
  }
  /// Returns the seconds of its forward and backward.
  double seconds(Stage::Recompute recompute) const { return forward + backward(recompute); }
};

/// Runs each layer of `model` on `device` for a micro-batch of shape `input` [n, …]: `repeats` times, or fewer times if
/// that takes more than a few seconds. Times are medians by `clock`, which belongs to the calling thread. On the device
/// `meta`, with a modelled clock, nothing is computed, and any model fits. Layers are materialized one at a time and
/// run on made-up inputs; that of the model is of type `type`, and if that is an integer, all zeros. Those of the
/// others, and the weights, are of type `weights`. Throws Error if the model has memory already, and what a layer
/// throws. The model has no memory afterwards, also if a layer throws.
std::vector<LayerProfile> profile_layers(Sequential& model, const Shape& input, Device device, int repeats,
                                         Clock& clock, DType type = DType::float32, DType weights = DType::float32);
/// The same by a wall clock.
std::vector<LayerProfile> profile_layers(Sequential& model, const Shape& input, Device device, int repeats = 5,
                                         DType type = DType::float32, DType weights = DType::float32);

/// Converts a profile to bytes, [layers, n] uint8, for sending, and back.
Tensor to_bytes(const std::vector<LayerProfile>& layers);
std::vector<LayerProfile> layers_from(const Tensor& bytes);

/// Returns the seconds of each layer's forward and backward.
std::vector<double> seconds_of_layers(const std::vector<LayerProfile>& layers, Stage::Recompute recompute);

/// Returns the costs of stages made of these layers, without messages and updates.
Costs costs_of_stages(const std::vector<LayerProfile>& layers, const Split& split, Stage::Recompute recompute);

/// Returns the bytes of each stage's weights.
std::vector<double> weight_bytes_of_stages(const std::vector<LayerProfile>& layers, const Split& split);

/// Returns the largest workspace of any layer of each stage: the layers of a rank run one after the other.
std::vector<double> workspace_bytes_of_stages(const std::vector<LayerProfile>& layers, const Split& split);

/// Returns the bytes that one micro-batch in flight takes in each stage, on the allocator of the stage's rank; with
/// recomputation only the stage's output. The input of a stage is counted in the stage before it, which made it; the
/// first stage counts `input_bytes`, the model's own input.
std::vector<double> bytes_of_stages(const std::vector<LayerProfile>& layers, const Split& split,
                                    std::int64_t input_bytes, Stage::Recompute recompute);

/// Returns the bytes that one micro-batch takes in each stage between the two parts of a split backward: the inputs and
/// the gradients of the outputs of layers with weights. The first stage has no input gradient to compute, and keeps its
/// graph.
std::vector<double> deferred_bytes_of_stages(const std::vector<LayerProfile>& layers, const Split& split,
                                             std::int64_t input_bytes);

}  // namespace stagecoach
