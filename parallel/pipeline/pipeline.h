#pragma once
/// @file
/// Runs a lowered schedule on a rank: a table from operation to function, the same for every schedule. It sends and
/// receives what the schedule lists, and nothing else.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/tensor.h"
#include "parallel/comm/communicator.h"
#include "parallel/pipeline/action_log.h"
#include "parallel/pipeline/stage.h"
#include "parallel/schedule/placement.h"
#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// What a run trains on, micro-batch by micro-batch. Images are asked for on the ranks of the first stage, labels on
/// those of the last; both are on the rank's device.
struct StepData {
  std::function<Tensor(int microbatch)> input;   ///< [n, …]
  std::function<Tensor(int microbatch)> labels;  ///< [n] int32
  /// Samples of each micro-batch: known on every rank.
  std::vector<std::int64_t> samples;
  /// Where other pipelines train on the rest of the batch: the samples of the whole one.
  std::optional<std::int64_t> of = {};
};

/// What a program does between the actions of its rank. Each may be left out. An `action_index` is the place of an
/// action in the rank's list.
struct Hooks {
  /// On the rank of the last stage: a micro-batch's summed loss [] and its output.
  std::function<void(int microbatch, const Tensor& loss, const Tensor& scores)> see_scores = {};
  /// Whether to run a computation, a reduction or an update, or to leave it out. What is left out is not sent, and its
  /// receive is withdrawn. All ranks must decide alike for a micro-batch, and for a backward as for its forward; else
  /// one waits for a message that nobody sends.
  std::function<bool(std::size_t action_index)> admits = {};
  /// A computation or an update begins; what this takes counts as part of it.
  std::function<void(std::size_t action_index)> before = {};
  /// It has ended.
  std::function<void(std::size_t action_index)> after = {};
  /// What a reduction does. Without it gradients are of this pipeline alone.
  std::function<void(std::size_t action_index)> reduce = {};
  /// What an update does. Needed where the schedule lists them.
  std::function<void(std::size_t action_index)> update = {};
};

class Pipeline {
 public:
  /// `stages` are the ones that this rank holds, by number; `entering` what enters each stage of the whole pipeline for
  /// one sample: [1, …] (shapes_entering in split.h). `placement` says which ranks of `comm` hold which stage.
  Pipeline(std::map<int, Stage> stages, std::vector<Shape> entering, Placement placement, Communicator& comm);

  /// All actions of this rank. The loss is the mean over all samples of a batch, whatever the micro-batches. Parameters
  /// get their gradients added, always in the order of the micro-batches (see gradient_order.h); updates are left to
  /// the hooks. The schedule must be legal (see check). Throws Error for a schedule that is not lowered, that is of
  /// other stages or ranks, or that has another number of micro-batches than `data`; CommError when another rank fails.
  void run(const Schedule& schedule, const StepData& data, const Hooks& hooks = {});

  /// The most micro-batches that were alive at once over all stages of this rank, in the last run.
  std::size_t peak_activations() const { return peak_; }
  /// The most gradients of a stage that waited for their turn at once, likewise.
  std::size_t peak_waiting_gradients() const { return peak_waiting_; }
  /// Training (the default) or evaluation, for all stages of this rank.
  void train(bool on);
  Stage& stage(int number) { return stages_.at(number); }
  int rank() const { return comm_.rank(); }
  ActionLog& log() { return log_; }

 private:
  enum class Way { forward, backward };
  using Perform = void (Pipeline::*)(const Action& action, std::size_t index);
  static const Perform kPerform[kOperations];

  bool is_left_out(const Action& action, std::size_t index) const;
  void withdraw_receive(const Schedule& schedule, const Action& action);
  template <class Body>
  void work(const Action& action, std::size_t index, const Body& body);
  void forward(const Action& action, std::size_t index);
  void backward(const Action& action, std::size_t index);
  void backward_input(const Action& action, std::size_t index);
  void backward_weight(const Action& action, std::size_t index);
  void update(const Action& action, std::size_t index);
  void send(const Action& action, std::size_t index);
  void receive(const Action& action, std::size_t index);
  void reduce(const Action& action, std::size_t index);

  Tensor gradient_for(int stage, int microbatch);
  Tensor take(int stage, int microbatch, Way way);
  void give(Tensor tensor, int stage, int microbatch, Way way);
  void note_peaks();
  void drop_taken_sends();
  int tag(int stage, int microbatch, Way way) const;
  /// The number of a message for the trace: tags are the same in each run.
  std::uint64_t message_number(int tag) const {
    return runs_ * (std::uint64_t{kMaxTag} + 1) + static_cast<std::uint64_t>(tag);
  }
  bool is_last(int stage) const { return stage + 1 == placement_.stage_count(); }

  std::map<int, Stage> stages_;
  std::vector<Shape> entering_;
  Placement placement_;
  Communicator& comm_;
  ActionLog log_;
  const StepData* data_ = nullptr;  // of the run under way, as the next ones
  const Hooks* hooks_ = nullptr;
  int batch_ = 0;  // micro-batches of a batch
  bool sends_wait_ = false;
  std::map<int, Tensor> results_;           // what stages gave, until it is used here or sent; by tag
  std::map<int, PendingReceive> receives_;  // posted and not yet used, by tag
  std::vector<PendingSend> sends_;
  std::uint64_t runs_ = 0;
  std::size_t peak_ = 0;
  std::size_t peak_waiting_ = 0;
};

}  // namespace stagecoach
