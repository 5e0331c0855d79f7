#pragma once
/// @file
/// Trains a model on one device and in a pipeline, so that tests can compare what the two leave, byte for byte.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "nn/named_tensors.h"
#include "nn/sequential.h"
#include "parallel/launch/launch.h"
#include "parallel/pipeline/stage.h"
#include "parallel/schedule/schedule.h"

namespace stagecoach::test {

inline constexpr std::uint64_t kSeed = 5;  ///< of the weights

using Model = std::shared_ptr<Sequential>;

/// What to train: a model, the shape of one sample, and how often.
struct Task {
  std::function<Model()> make;
  Shape sample;  // without the batch
  std::int64_t classes;
  int steps;
  /// Of `count` samples.
  Shape shape_of(std::int64_t count) const;
};

/// 32 layers of different widths: enough for 8 ranks with 4 chunks.
Model uneven_model();
/// The same with dropout after every other layer.
Model model_with_dropout();
/// Convolutions, batch norm with its statistics, a residual block, pooling.
Model image_model();

/// The samples of micro-batch i of a step: two each, but one in the last.
struct Batch {
  Batch(const Task& task, int microbatches, int step);
  std::int64_t size(int i) const;
  Tensor images_of(int i, Device device) const { return images.narrow(2 * i, size(i)).to(device); }
  Tensor labels_of(int i, Device device) const { return labels.narrow(2 * i, size(i)).to(device); }
  std::int64_t count;
  Tensor images;
  Tensor labels;
};

/// What a training leaves: the tensors by name, the squared gradient norms of each step, the losses.
struct Trained {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, double> squares;  // "step/parameter"
  std::map<std::string, double> losses;   // "step/micro-batch"

  void note(int step, const NamedTensors& parameters);
  void finish(const Module& model);
};

/// One device that adds up the gradients of its micro-batches.
Trained on_one_device(const Task& task, int microbatches);

/// The shapes that enter each stage when the layers are distributed evenly.
std::vector<Shape> entering_stages(const Task& task, int stages);

/// What one rank does: its stages, its optimizer, and the same steps. Checks the peaks that the schedule predicts.
void train_rank(Rank& rank, const Task& task, const Schedule& schedule, const std::vector<Shape>& entering,
                Stage::Recompute recompute, Trained& result, std::mutex& mutex);

/// All ranks of `table`, as threads, with the messages that it lists, or those that lower() gives it.
Trained in_pipeline(const Task& task, const Schedule& table, Stage::Recompute recompute = Stage::Recompute::no);

/// The same tensors, gradient norms and losses.
void expect_equal(const Trained& wanted, const Trained& got);

}  // namespace stagecoach::test
