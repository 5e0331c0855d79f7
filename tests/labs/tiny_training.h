#pragma once
/// @file
/// Trains a model of a few hundred weights for some steps: on watched ranks, with the step of a student, and on one
/// device. The weights must be equal, bit for bit, after every step.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "parallel/pipeline/stage.h"
#include "tests/labs/watched_ranks.h"

namespace stagecoach::labs {

struct TinyTraining {
  std::vector<int> stage_to_rank;
  std::vector<std::int64_t> sizes;  ///< samples of each micro-batch
  int steps = 3;
  bool wants_no_gradient_of_images = false;  ///< fails if stage 0 computes one

  int ranks() const;
  std::int64_t samples() const;
};

/// What one rank knows of a step.
struct RankPart {
  Communicator& comm;
  std::map<int, Stage>& stages;
  const std::vector<Shape>& entering;  ///< what enters each stage, for one sample: [1, …]
  const std::vector<Tensor>& images;   ///< of each micro-batch, on the rank of stage 0
  const std::vector<Tensor>& labels;   ///< of each micro-batch, on the rank of the last stage
};

/// Computes the gradients of a step on one rank. Returns the sum of the losses on the rank of the last stage.
using RankStep = std::function<double(const RankPart& part)>;

/// Throws Failed with `look_at` unless training with `step` gives the losses and weights of one device; it names the
/// first step and weight that differ, and gradients of the sum of the losses where their mean is asked for. Returns the
/// messages of all steps.
std::vector<Message> require_equal_to_one_device(const TinyTraining& training, const RankStep& step,
                                                 const std::string& look_at);

/// Trains with `step`, and compares nothing. Returns the messages of all steps.
std::vector<Message> messages_of(const TinyTraining& training, const RankStep& step, const std::string& look_at);

}  // namespace stagecoach::labs
