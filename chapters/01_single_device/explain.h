#pragma once
/// @file
/// The output of --explain: one training step as a schedule, and what autograd keeps for its backward.

#include <functional>

#include "chapters/common/settings.h"
#include "datasets/dataset.h"
#include "nn/loss_function.h"
#include "nn/module.h"
#include "nn/optimizer.h"
#include "parallel/training/epoch_meter.h"

namespace stagecoach {

/// main.cpp's training step.
using SingleDeviceStep =
    std::function<void(const Tensor& images, const Tensor& labels, const TrainingSettings& training, Module& model,
                       const LossFunction& summed_loss, Optimizer& optimizer, EpochSums& sums)>;

/// Prints the graph of a micro-batch's forward and, by the modelled clock, what a step takes. Nothing is trained or
/// computed. With --out, also writes schedule.csv and prediction.json.
void explain(const Settings& settings, const Dataset& data, const SingleDeviceStep& train_step);

}  // namespace stagecoach
