#pragma once
/// @file
/// A model whose stages are placed on devices of one program.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "chapters/common/epoch_log.h"
#include "chapters/common/settings.h"
#include "datasets/dataset.h"
#include "nn/sequential.h"

namespace stagecoach {

struct PlacedModel {
  std::shared_ptr<Sequential> whole;                // shares its layers with the stages
  std::vector<std::shared_ptr<Sequential>> stages;  // stage s is on devices[s]
  std::vector<Device> devices;
  mutable std::vector<double> moved = {};  // bytes that have entered each stage in training since begin_moves()

  int size() const { return static_cast<int>(stages.size()); }
  /// Moves x to a stage's device and runs the stage there; images as bytes become floats from -1 to 1 first. On
  /// asynchronous devices this only appends calls.
  Tensor forward(int stage, const Tensor& x) const;

  /// Starts counting what moves between the devices.
  void begin_moves() const { moved.assign(stages.size(), 0); }
  /// Returns the most that has moved from one device to the next one. (As much comes back in the backward.)
  LinkBytes busiest_link() const;
};

/// Returns the devices of the run: cpu:1, cpu:2, … (cpu:0 is the host's), or GPUs.
std::vector<Device> open_devices(const WorldSettings& world);

/// Splits the model of --model into one stage per device, by --split or --balance; without --split, the ConvNet on four
/// devices is split as conv1 | conv2 | fc | out. The model has no memory yet.
PlacedModel split_over_devices(const Settings& settings, const Dataset& data, const std::vector<Device>& devices);
/// Gives every layer its initial weights, on the device of its stage.
void place(PlacedModel& model, std::uint64_t seed);

/// Returns a table of the layers: the device of each, the shape of its output for [N, …] images, and its parameters.
std::string layer_table(const PlacedModel& model, const Shape& sample);

}  // namespace stagecoach
