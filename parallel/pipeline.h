#pragma once
/// @file
/// Runs a schedule on a rank: the same loop for every schedule. What a stage needs from another rank is received before
/// it runs, and what it gives is sent on after it.

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "core/tensor.h"
#include "parallel/action_log.h"
#include "parallel/comm/communicator.h"
#include "parallel/schedule/schedule.h"
#include "parallel/stage.h"

namespace stagecoach {

/// What a step trains on, micro-batch by micro-batch. Images are asked for on the rank of the first stage, labels on
/// that of the last; both are on the rank's device.
struct StepData {
  std::function<Tensor(int microbatch)> input;   ///< [n, …]
  std::function<Tensor(int microbatch)> labels;  ///< [n] int32
  /// Samples of each micro-batch: known on every rank.
  std::vector<std::int64_t> samples;
};

class Pipeline {
 public:
  using SeeScores = std::function<void(int microbatch, const Tensor& loss, const Tensor& scores)>;

  /// `stages` are the ones that this rank holds, by number; `entering` what enters each stage of the whole pipeline for
  /// one sample: [1, …] (shapes_entering in split.h). `holder` says which rank of `comm` holds which stage.
  Pipeline(std::map<int, Stage> stages, std::vector<Shape> entering, std::vector<int> holder, Communicator& comm);

  /// One step: all actions of this rank. The loss is the mean over all samples of the step, whatever the micro-batches.
  /// Parameters get their gradients added; nothing is updated. `see_scores` is called on the rank of the last stage:
  /// the micro-batch's summed loss [] and its output. The schedule must be legal (see check) and of these stages and
  /// ranks.
  void run(const Schedule& schedule, const StepData& data, const SeeScores& see_scores = {});

  /// The most micro-batches that were alive at once over all stages of this rank, in the last step.
  std::size_t peak_activations() const { return peak_; }
  /// Training (the default) or evaluation, for all stages of this rank.
  void train(bool on);
  Stage& stage(int number) { return stages_.at(number); }
  ActionLog& log() { return log_; }

 private:
  enum class Way { forward, backward };

  void run_action(const Action& action);
  void forward(int stage, int microbatch);
  Tensor gradient_for(int stage, int microbatch);
  Tensor take(int stage, int microbatch, Way way);
  void give(Tensor tensor, int stage, int microbatch, Way way);
  int holder(int stage) const { return holder_[static_cast<std::size_t>(stage)]; }
  int tag(int stage, int microbatch, Way way) const;
  bool is_last(int stage) const { return stage + 1 == static_cast<int>(holder_.size()); }

  std::map<int, Stage> stages_;
  std::vector<Shape> entering_;
  std::vector<int> holder_;
  Communicator& comm_;
  ActionLog log_;
  const StepData* data_ = nullptr;  // of the step under way
  const SeeScores* see_scores_ = nullptr;
  std::map<int, Tensor> at_hand_;  // what goes from one stage to another of this rank, by tag
  std::vector<PendingSend> sends_;
  std::size_t peak_ = 0;
};

}  // namespace stagecoach
