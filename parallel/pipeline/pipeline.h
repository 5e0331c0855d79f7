#pragma once
/// @file
/// Runs a lowered schedule on a rank through one table from operation to function, the same for every schedule. It
/// sends and receives what the schedule lists, and nothing else. Its stages and it time what they do (ActionLog).

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "nn/optimizer.h"
#include "parallel/comm/communicator.h"
#include "parallel/pipeline/action_log.h"
#include "parallel/pipeline/stage.h"
#include "parallel/schedule/placement.h"
#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// The data of a run, micro-batch by micro-batch. `input` is called on the ranks of the first stage and `labels` on
/// those of the last; both return tensors on the rank's device. Without `labels` there is no loss: a schedule that
/// lists backwards needs `output_gradient`.
struct StepData {
  std::function<Tensor(int microbatch)> input;   ///< [n, …]
  std::function<Tensor(int microbatch)> labels;  ///< [n, …], as the loss of the last stage takes them
  /// The number of samples of each micro-batch; set on every rank.
  std::vector<std::int64_t> samples;
  /// The number of samples of the whole batch, if other pipelines train on the rest of it.
  std::optional<std::int64_t> of = {};
  /// Where the first micro-batch is, for layers that draw random numbers. Of several batches each is one step more.
  std::optional<BatchPosition> position = {};
  /// Returns more inputs of the layers, by name, on the device of the calling rank: any rank calls it. May be empty.
  std::function<NamedTensors(int microbatch)> values = {};
  /// Returns the gradient of the last stage's output [n, …], called on its ranks: for a loss outside of the pipeline.
  std::function<Tensor(int microbatch)> output_gradient = {};
  bool wants_input_gradient = false;  ///< whether backwards compute the gradient of the first stage's input
};

/// Callbacks of a program during a run. Each may be empty.
struct Hooks {
  /// Called on the rank of the last stage with a micro-batch's loss [] and its predictions (see Stage). Without
  /// labels the loss is undefined, and they are the output.
  std::function<void(int microbatch, const Tensor& loss, const Tensor& logits)> see_logits = {};
  /// Called on the rank of the first stage with the gradient of a micro-batch's input, if it is wanted.
  std::function<void(int microbatch, const Tensor& gradient)> see_input_gradient = {};
  /// Performs a reduction. Without it gradients are those of this pipeline alone.
  std::function<void(const Action& reduction)> reduce = {};
  /// Performs an update. Without it the schedule must list none.
  std::function<void(const Action& update)> update = {};
};

class Pipeline {
 public:
  /// `stages` are the stages of this rank, by number. `entering` is the input shape of each stage of the whole pipeline
  /// for one sample, [1, …] (see shapes_entering in split.h). `placement` says which ranks of `comm` run which stage.
  /// `type` is that of the weights, and so of all messages and of the loss.
  Pipeline(std::map<int, Stage> stages, std::vector<Shape> entering, Placement placement, Communicator& comm,
           DType type = DType::float32);
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// Performs all actions of this rank. The loss is the mean over all samples of a batch, however it is split into
  /// micro-batches. Gradients are accumulated in the parameters, always in the order of the micro-batches (see
  /// gradient_order.h). The schedule must be legal (see check). Throws Error for a schedule that is
  /// not lowered, or whose stages, ranks or number of micro-batches do not match; CommError when another rank fails.
  void run(const Schedule& schedule, StepData data, Hooks hooks = {});

  // The same, action by action, for a program that does something of its own between actions.
  /// Begins a run. Throws as `run` does.
  void begin(const Schedule& schedule, StepData data, Hooks hooks = {});
  /// Performs the next action of this rank. A micro-batch may be skipped if all ranks skip
  /// all its actions, including messages. Throws CommError when another rank fails.
  void perform(const Action& action);
  /// Waits until all sends have completed.
  void finish();

  /// Runs the optimizer's step, and sets the gradients to zero: the update at the end of a step whose schedule lists
  /// none.
  void update(Optimizer& optimizer, const Action& update = {Operation::update, Activity::kNone, 0});

  /// Switches all stages of this rank to training (the default) or evaluation.
  void train(bool on);
  Stage& stage(int number) { return stages_.at(number); }
  int rank() const { return comm_.rank(); }
  ActionLog& log() { return log_; }

 private:
  enum class Direction { forward, backward };
  using Perform = void (Pipeline::*)(const Action& action);
  static const Perform kPerform[kOperations];

  template <class Body>
  void work(const Action& action, const Body& body);
  void forward(const Action& action);
  void backward(const Action& action);
  void backward_weight(const Action& action);
  void perform_update(const Action& action);
  void send(const Action& action);
  void receive(const Action& action);
  void reduce(const Action& action);

  Shape shape_entering(int stage, int microbatch) const;
  std::optional<BatchPosition> position_of(int microbatch) const;
  Tensor gradient_for(int stage, int microbatch);
  Tensor take(int stage, int microbatch, Direction direction);
  void give(Tensor tensor, int stage, int microbatch, Direction direction);
  int tag(int stage, int microbatch, Direction direction) const;
  bool is_last(int stage) const { return stage + 1 == placement_.stage_count(); }

  std::map<int, Stage> stages_;
  std::vector<Shape> entering_;
  Placement placement_;
  Communicator& comm_;
  DType type_;
  ActionLog log_;
  StepData data_;  // of the current run, as are the members below
  Hooks hooks_;
  int batch_ = 0;  // micro-batches per batch
  bool sends_wait_ = false;
  std::map<int, Tensor> results_;           // outputs of stages until they are used here or sent, by tag
  std::map<int, PendingReceive> receives_;  // posted and not yet used, by tag
  std::deque<PendingSend> sends_;
  std::pair<double, Tensor> loss_gradient_;  // the last one, and its value, on a GPU
};

}  // namespace stagecoach
