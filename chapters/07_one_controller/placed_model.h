#pragma once
/// @file
/// A model whose stages are placed on devices of one program.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chapters/common/open.h"
#include "chapters/common/run.h"
#include "core/asynchronous.h"
#include "datasets/device_loader.h"
#include "nn/batch_position.h"
#include "parallel/training/predictor.h"

namespace stagecoach {

struct PlacedModel {
  std::shared_ptr<Sequential> whole;                // shares its layers with the stages
  std::vector<std::shared_ptr<Sequential>> stages;  // stage s is on devices[s]
  std::vector<Device> devices;

  int size() const { return static_cast<int>(stages.size()); }
  /// Gives every layer its initial weights, on the device of its stage.
  void place(std::uint64_t seed);
  /// Does so for a training, which may begin with those of --weights.
  void place(const TrainingSettings& training, const Dataset& data);
  /// Moves x, of a micro-batch, to a stage's device and runs the stage there; images as bytes become floats from -1 to
  /// 1 first. On asynchronous devices this only appends calls.
  Tensor forward(int stage, int microbatch, const Tensor& x) const;
  /// Runs the backward of `loss` [] on all devices, from the gradient `grad`.
  void backward(const Tensor& loss, double grad) const;
};

/// Returns where part `part` of the `parts` of a batch of `samples` is (micro_batches), if the batch's position is
/// known.
std::optional<BatchPosition> position_of_part(std::int64_t samples, int part, int parts);

/// Returns the devices of the run: cpu:1, cpu:2, … (cpu:0 is the host's), or GPUs.
std::vector<Device> open_devices(const WorldSettings& world);
/// Makes CPU devices asynchronous while the result exists, unless --synchronous is given. (GPUs are so anyway.) On the
/// modelled clock their times are computed: copies between two devices take --link.
std::shared_ptr<const void> make_asynchronous(const Settings& settings, const std::vector<Device>& devices);

/// Splits the model of --model into one stage per device, by --split or --balance; without --split, the ConvNet on four
/// devices is split as conv1 | conv2 | fc | out. The model has no memory yet.
PlacedModel split_over_devices(const Settings& settings, const Dataset& data, const std::vector<Device>& devices);

/// Returns a loader that leaves its batches in the memory of `host`.
DeviceLoader make_host_loader(const Settings& settings, const Dataset& data, LoaderFor purpose, Device host = {});

/// Counts the test images that the model classifies correctly, with `forward` only.
void evaluate(const PlacedModel& model, Epoch& epoch, DeviceLoader& loader,
              const std::function<Tensor(const PlacedModel& model, const Tensor& images)>& forward);

/// Returns what predicts the idle share of the devices if all stages take equally long; nothing where CPU devices are
/// synchronous, or for GPUs.
Predictor make_predictor(const Settings& settings, const PlacedModel& model);

}  // namespace stagecoach
