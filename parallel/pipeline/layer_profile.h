#pragma once
/// @file
/// What each layer of a model costs, measured on one device: time, memory, and what it would send.

#include <cstdint>
#include <vector>

#include "nn/sequential.h"
#include "parallel/pipeline/split.h"
#include "parallel/pipeline/stage.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

struct LayerProfile {
  double forward = 0;                ///< seconds for one micro-batch
  double backward_input = 0;         ///< seconds for the gradient of its input; 0 in the first layer, which needs none
  double backward_weight = 0;        ///< seconds for those of its parameters
  std::int64_t kept_bytes = 0;       ///< what its forward leaves in memory for the backward, its output included
  std::int64_t freed_bytes = 0;      ///< of its input, which nobody needs any more when the layer has run
  std::int64_t output_bytes = 0;     ///< what it hands to the next layer
  std::int64_t parameter_bytes = 0;  ///< its weights
  std::int64_t workspace_bytes = 0;  ///< what its forward and backward take at most, beyond all that

  double seconds() const { return forward + backward_input + backward_weight; }
};

/// Runs each layer of `model` on `device` for a micro-batch of shape `input` [n, …]: `repeats` times, or fewer when
/// they take more than some seconds. Times are medians. One layer has memory at a time, and works on numbers of its
/// own: the model has none before and after. Throws Error if it has.
std::vector<LayerProfile> profile_layers(Sequential& model, const Shape& input, Device device, int repeats = 5);

/// The profile as numbers, [layers, 8] float64, to send; and from them.
Tensor numbers_of(const std::vector<LayerProfile>& layers);
std::vector<LayerProfile> layers_from(const Tensor& numbers);

/// The costs of stages that are made of those layers; without messages and updates.
Costs costs_of_stages(const std::vector<LayerProfile>& layers, const Split& split);

/// The bytes of each stage's weights.
std::vector<double> weight_bytes_of_stages(const std::vector<LayerProfile>& layers, const Split& split);

/// The most workspace of a layer of each stage: layers of a rank run one after the other.
std::vector<double> workspace_bytes_of_stages(const std::vector<LayerProfile>& layers, const Split& split);

/// The bytes of one micro-batch in flight through each stage, on the allocator of its rank: with recomputation only
/// what leaves it. What enters a stage was made, and is counted, by the stage before; `input_bytes`, that of the model,
/// by the first.
std::vector<double> bytes_of_stages(const std::vector<LayerProfile>& layers, const Split& split,
                                    std::int64_t input_bytes, Stage::Recompute recompute);

}  // namespace stagecoach
