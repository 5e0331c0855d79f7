#pragma once
/// @file
/// The parts of training steps and tests on the stages of a rank.

#include <functional>
#include <map>
#include <memory>

#include "chapters/common/micro_batch_loader.h"
#include "chapters/common/plan.h"
#include "chapters/common/run.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/pipeline/stage_messages.h"

namespace stagecoach {

/// What differs in a pipeline where several share the batches, or several ranks the layers.
struct PipelineShare {
  std::shared_ptr<const LayerFactory> layers = nullptr;  ///< makes the layers; null: they are whole
  LossFunction loss = loss_of_whole_logits;
  Shard shard = {};  ///< of each batch
};

/// What a rank of a pipeline trains with, as the plan says.
struct PipelineWorker {
  PipelineWorker(const Plan& plan, const TrainTest& data, const Rank& rank, const PipelineShare& share = {});

  std::map<int, std::shared_ptr<Sequential>> stages;  ///< this rank's, by number, with their initial weights
  std::shared_ptr<Sequential> layers;                 ///< all of them, as one module
  std::unique_ptr<Optimizer> optimizer;
  Pipeline pipeline;  ///< runs the stages, and times what they do
  // Their batches have images on the rank of the first stage, labels on that of the last one, and sizes on all ranks.
  MicroBatchLoader train_loader;
  MicroBatchLoader test_loader;
};

/// Runs the forwards and backwards of a batch in the order of the plan's schedule. The rank of the last stage adds
/// losses and correct predictions to `sums`. `reduce` is called where the schedule sums the gradients of a stage over
/// several pipelines; other stages of this rank may not have finished by then.
void forward_backward(Pipeline& pipeline, const Plan& plan, const MicroBatches& batch, EpochSums& sums,
                      const std::function<void(int stage)>& reduce = {});

/// The forwards and backwards of a batch in an order that a chapter writes by hand, on a rank with one stage. (Chapter
/// 3 writes them out too.)
class StepByHand {
 public:
  /// The arguments must outlive this object. The rank of the last stage adds losses and correct predictions to `sums`.
  StepByHand(Stage& stage, const Plan& plan, const MicroBatches& batch, Communicator& comm, EpochSums& sums)
      : stage_(stage), batch_(batch), sums_(sums), messages_(comm, plan.shapes, batch.sizes) {}

  /// Waits for the input of micro-batch i, runs the stage, and sends its output on without waiting.
  void forward(int i);
  /// Does the same with the gradient of its output. That of the last stage is 1 / N, for a batch of N images.
  void backward(int i);
  /// Waits until the other ranks have all that was sent.
  void finish() { messages_.wait_for_sends(); }

 private:
  Stage& stage_;
  const MicroBatches& batch_;
  EpochSums& sums_;
  StageMessages messages_;
};

/// Tests the model: the rank of the last stage counts correct predictions in `sums`; by default, the epoch's test sums.
/// Micro-batches follow each other through the stages.
void evaluate(Pipeline& pipeline, const Plan& plan, Epoch& epoch, MicroBatchLoader& loader, EpochSums* sums = nullptr);

/// --sample: prints what a pipeline writes that runs `schedule`, on a rank that `prints`. All ranks of `comm`, those of
/// the pipeline, call it together; and those of `tensor_group`, which with --class-parallel have slices of the logits.
void print_sample(const Settings& settings, Pipeline& pipeline, const Schedule& schedule, Communicator& comm,
                  bool prints, Communicator* tensor_group = nullptr);
inline void print_sample(const Settings& settings, Pipeline& pipeline, const Schedule& schedule, Communicator& comm) {
  print_sample(settings, pipeline, schedule, comm, comm.rank() == 0);
}

}  // namespace stagecoach
