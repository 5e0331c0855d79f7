#pragma once
/// @file
/// Training steps for the grader of lab 7: with the answer on asynchronous devices, and on one device.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/asynchronous.h"
#include "core/stream_order.h"
#include "nn/sequential.h"
#include "tests/labs/lab7.h"

namespace stagecoach::labs::lab7 {

inline constexpr const char* kStep = "chapters/07_one_controller/lab/tick_step.h; chapter 1, \"Micro-batches\"";

/// Returns cpu:1 … cpu:stages.
std::vector<Device> devices_of(int stages);

/// A model and its batches.
struct Case {
  int stages;
  std::vector<std::int64_t> sizes;  ///< samples of each micro-batch; no two are equal, so they say which one it is
};

/// A forward or backward of a stage.
struct StageCall {
  int stage;
  std::int64_t size;  ///< of the micro-batch
  std::shared_ptr<const QueuePoint> end =
      nullptr;  ///< of a forward on an asynchronous device: after its last operation
};
/// What the stages were called for, in order.
struct StageCalls {
  std::vector<StageCall> forwards;
  std::vector<StageCall> backwards;
};

/// The micro-batches of a step, on the host.
struct Data {
  std::vector<Tensor> images;
  std::vector<Tensor> labels;
};
Data data_of(const Case& training, int step);

using Values = std::map<std::string, std::vector<float>>;
/// What a step leaves.
struct Trained {
  float loss = 0;
  Values gradients = {};
  Values weights = {};
};

/// What a micro-batch's gradients are multiplied by: 1 / N, 1, or 1 / (m N_i).
enum class Weighting { by_samples, sum, by_microbatches };
/// The order in which micro-batches run.
enum class Order { ascending, descending };

/// Trains for some steps on one synchronous device.
std::vector<Trained> train_on_one_device(const Case& training, int steps, Weighting weighting = Weighting::by_samples,
                                         Order order = Order::ascending);

/// The stages of a model on asynchronous devices.
struct PlacedStages {
  /// `calls` notes what the stages are called for.
  PlacedStages(const Case& training, StageCalls& calls);
  /// Calls the answer, and waits for nothing.
  Tensor step(const Answer& answer, const Data& data);

  std::vector<Device> devices;
  std::vector<std::shared_ptr<Sequential>> layers;
  std::vector<Stage> stages;
  AsynchronousDevices asynchronous;
};

/// Trains with the answer. Throws Failed unless it returns a loss on the last device. `calls` are those of all steps.
std::vector<Trained> train_with(const Answer& answer, const Case& training, int steps, StageCalls& calls);

}  // namespace stagecoach::labs::lab7
