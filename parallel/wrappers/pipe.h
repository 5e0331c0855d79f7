#pragma once
/// @file
/// Pipeline parallelism in one line: a model that is called like one on a single device, and runs as a pipeline.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/make_optimizer.h"
#include "nn/sequential.h"
#include "parallel/launch/rank_pool.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/pipeline/split.h"
#include "parallel/schedule/schedule.h"

namespace stagecoach {

struct PipeSettings {
  /// Micro-batches per batch, as in other libraries' wrappers of this name. (`--chunks` of the chapters is something
  /// else: the stages per rank, here `stages_per_rank`.)
  int chunks = 4;
  std::string schedule = "1f1b";  ///< a name that make_schedule knows
  int ranks = 2;
  int stages_per_rank = 0;          ///< 0: two where the schedule takes several, as in chapter 5
  Split split = {};                 ///< layers per stage; empty: measured, so that a step is as fast as possible
  MakeOptimizer optimizer = sgd();  ///< each rank has one for its own layers
  bool recompute = false;           ///< activation checkpointing
  std::uint64_t seed = 1;           ///< of the initial weights
  DeviceType device = DeviceType::cpu;
  double timeout = 30;  ///< seconds that a rank waits for another before the call fails
};

/// Trains a model in a pipeline whose ranks are threads, which stay alive between calls. The weights are, bit for bit,
/// those of one device that accumulates the gradients of the same micro-batches, whatever the ranks and the schedule.
/// Batch norm normalises each micro-batch by itself.
///
///     Pipe pipe(model, {.chunks = 8, .schedule = "1f1b", .ranks = 4});
///     double loss = pipe.train_step(images, labels);
///     Tensor logits = pipe.forward(images);
///
/// `model` shares its layers with the pipe: between calls, its weights may be read, saved (save_weights) and replaced
/// (load_weights). For use by one thread.
///
/// If a rank fails, its error is thrown to the caller, and the pipe cannot be used any more: later calls throw Error.
/// What the constructor and the calls check before a rank runs (UsageError) changes nothing.
/// Source of the interface: torch.distributed.pipeline.sync.Pipe, after Kim et al., "torchgpipe", 2020.
class Pipe {
 public:
  /// `model` must have no memory: each rank allocates its own stages. Throws UsageError for a model without layers, for
  /// sizes that the schedule does not accept, for more stages than layers, for a split that does not fit, and for
  /// settings that the optimizer refuses.
  explicit Pipe(std::shared_ptr<Sequential> model, PipeSettings settings = {});

  /// Gives the layers memory: measures them for images of this shape [N, …], splits them into stages, and initialises
  /// each stage on its rank. The first train_step or forward calls it. Call it before to load weights that the first
  /// step trains further. Throws Error, naming the layer, for a shape that the model does not accept and for a model
  /// that has memory already, and UsageError for images of another shape than before.
  void place(const Shape& images);

  /// Trains on a batch: forward, backward, and the optimizers' step. Returns the mean loss (cross-entropy) over the N
  /// images: float32 [N, …], with labels int32 [N], both on any device. A batch with fewer images than micro-batches
  /// has one micro-batch per image. Throws UsageError for tensors of other shapes or types.
  double train_step(const Tensor& images, const Tensor& labels);
  /// Returns the model's output for `x`, float32 [N, …], in evaluation mode, on the CPU: [N, …].
  Tensor forward(const Tensor& x);

  /// Sets the learning rate of all layers from the next step on. Throws UsageError for a rate that the optimizer
  /// refuses.
  void set_learning_rate(double rate);
  double learning_rate() const { return learning_rate_; }

  /// Returns the layers per stage; empty before place().
  const Split& split() const { return split_; }
  /// Returns what each rank does in a training step.
  const Schedule& schedule() const { return schedule_; }

 private:
  using Body = std::function<void(Rank& rank, Pipeline& pipeline, const Schedule& schedule, const StepData& data)>;
  void run(const Schedule& schedule, const Tensor& images, const Tensor& labels, bool trains, const Body& body);
  std::map<int, std::shared_ptr<Sequential>> stages_of_rank(int rank) const;

  std::shared_ptr<Sequential> model_;
  PipeSettings settings_;
  double learning_rate_;
  Schedule schedule_;
  Split split_;
  std::vector<Shape> shapes_;                           // of each stage's input, for one image; empty before place()
  std::vector<std::shared_ptr<Sequential>> stages_;     // share the layers of model_
  std::vector<std::unique_ptr<Optimizer>> optimizers_;  // one per rank; null before place()
  RankPool ranks_;                                      // destroyed first: its threads work on the stages
};

}  // namespace stagecoach
