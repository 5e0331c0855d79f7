#pragma once
/// @file
/// Pipeline parallelism in one line: a model that is called like one on a single device, and runs as a pipeline.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "nn/loss_function.h"
#include "nn/make_optimizer.h"
#include "nn/sequential.h"
#include "nn/tied_weights.h"
#include "parallel/launch/rank_pool.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/pipeline/rank_role.h"
#include "parallel/pipeline/split.h"
#include "parallel/schedule/schedule.h"
#include "parallel/wrappers/pipe_batch.h"

namespace stagecoach {

/// The input of a model, and what its layers find by name besides (nn/named_values.h): tensors with a row per sample.
struct PipeInput {
  PipeInput(Tensor input, NamedTensors more = {}) : x(std::move(input)), values(std::move(more)) {}
  Tensor x;             ///< [N, …], of PipeSettings::type or what the first layer takes, on any device
  NamedTensors values;  ///< each [N, …], of any type, on any device; they get no gradient
};

struct PipeSettings {
  /// Micro-batches per batch, as in other libraries' wrappers of this name; 0: as many as a given table has,
  /// otherwise 4. (`--chunks` of the chapters is something else: the stages per rank, here `stages_per_rank`.)
  int chunks = 0;
  /// A name that make_schedule knows; a file with a table (schedule/text.h), such as PyTorch writes; or a table.
  std::variant<std::string, Schedule> schedule = "1f1b";
  int ranks = 0;                          ///< 0: as many as a given table has, otherwise 2
  int stages_per_rank = 0;                ///< 0: two where the schedule takes several, as in chapter 5
  Split split = {};                       ///< layers per stage; empty: measured, so that a step is as fast as possible
  std::optional<LossFunction> loss = {};  ///< empty: the cross-entropy of logits [N, C] and labels int32 [N]
  MakeOptimizer optimizer = sgd();        ///< one for all layers
  TiedWeights::Names tied = {};           ///< parameters that are the same, such as those of the first and last layer
  bool recompute = false;                 ///< activation checkpointing
  std::uint64_t seed = 1;                 ///< of the initial weights
  DType type = DType::float32;            ///< of the weights, and of inputs that are no integers: or float64
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
/// or, with a loss outside of the pipe:
///
///     Tensor output = pipe.forward_for_loss(x);
///     backward(mean_squared_error(output, target.to(output.device())));
///     pipe.step();
///     pipe.zero_grad();
///
/// `model` shares its layers with the pipe: between calls, its weights may be read, saved (save_weights), replaced
/// (load_weights) and frozen, and its gradients read and changed. With the model and optimizer(), parallel/training
/// saves and resumes a training, also with another number of ranks. For use by one thread.
///
/// If a rank fails, its error is thrown to the caller, and the pipe cannot be used any more: later calls throw Error.
/// What the constructor and the calls check before a rank runs (UsageError) changes nothing.
/// Source of the interface: torch.distributed.pipeline.sync.Pipe, after Kim et al., "torchgpipe", 2020.
class Pipe {
 public:
  /// `model` must have no memory: each rank's stages are allocated on its device. Throws UsageError for a model without
  /// layers, for sizes that the schedule does not accept, for a table that cannot run or does not fit, for more stages
  /// than layers, for a split that does not fit, and for settings that the optimizer refuses; DataError for a file that
  /// cannot be read.
  explicit Pipe(std::shared_ptr<Sequential> model, PipeSettings settings = {});

  /// Gives the layers memory: measures them for inputs of this shape [N, …] and type, splits them into stages, and
  /// initialises each stage on its rank. The first batch calls it. Call it before to load weights that the first step
  /// trains further. Throws Error, naming the layer, for a shape that the model does not accept and for a model that
  /// has memory already, and UsageError for inputs of another shape or type than before.
  void place(const Shape& inputs, DType type);
  void place(const Shape& inputs) { place(inputs, settings_.type); }
  /// The same for a model with more inputs. Only the shapes and types of `example` count.
  void place(const PipeInput& example);

  /// Runs the forwards and backwards of a batch, and adds to the gradients those of the mean loss over the N samples,
  /// which it returns. The targets are [N, …], on any device. Stores the model's output [N, …] in `output`, unless it
  /// is null, on the device of the last stage. A batch with fewer samples than micro-batches has one micro-batch per
  /// sample. A parameter's gradient hook is called on its rank, after each micro-batch. Throws UsageError for tensors
  /// of other shapes or types, and if zero_grad() was not called after the last step().
  double backward(const PipeInput& input, const Tensor& target, Tensor* output = nullptr);
  /// The optimizer's step: each rank updates its layers. The gradients of tied weights are added before.
  void step();
  /// Clears all gradients. Without a step before, the next batch is again the first one of the step.
  void zero_grad();
  /// Trains on a batch: backward, step, zero_grad. Returns the mean loss.
  double train_step(const PipeInput& input, const Tensor& target);

  /// Returns the model's output in training mode, [N, …], on the device of the last stage. Its backward runs the
  /// pipeline's: it adds to the gradients of the parameters, and of the input `x` if x requires one. Until then each
  /// rank keeps all micro-batches, as with GPipe. Several outputs may be in use at a time. Throws UsageError as
  /// backward() does.
  Tensor forward_for_loss(const PipeInput& input);
  /// Returns the model's output in evaluation mode, on the CPU: [N, …].
  Tensor forward(const PipeInput& input);

  /// Returns the model, whose parameters are on the devices of their ranks.
  Sequential& model() { return *model_; }
  /// Returns the optimizer of all layers. Throws UsageError before place().
  Optimizer& optimizer();
  /// Sets the learning rate of all layers from the next step on. Throws UsageError for a rate that the optimizer
  /// refuses.
  void set_learning_rate(double rate);
  double learning_rate() const { return optimizer_ == nullptr ? learning_rate_ : optimizer_->learning_rate(); }

  /// Returns the layers per stage; empty before place().
  const Split& split() const { return split_; }
  /// Returns what each rank does in a training step.
  const Schedule& schedule() const { return schedule_; }
  /// Returns the devices of the ranks.
  std::vector<Device> devices() const { return ranks_->devices(); }
  /// Returns what a Run (parallel/training/run.h) measures and prints of the ranks.
  RankRole role() const;

 private:
  std::unique_ptr<PipeBatch> begin(const PipeInput& input, bool trains);
  PipeBatch::Parts parts_of(const PipeInput& input) const;
  std::unique_ptr<Pipeline> make_pipeline(Rank& rank) const;
  std::map<int, std::shared_ptr<Sequential>> stages_of_rank(int rank) const;
  Tensor run_forwards(PipeBatch& batch, const PipeInput& input) const;

  std::shared_ptr<Sequential> model_;
  PipeSettings settings_;
  LossFunction loss_;
  double learning_rate_;  // at first
  Schedule schedule_;
  Split split_;
  DType input_type_ = DType::float32;
  std::vector<Shape> shapes_;                        // of each stage's input, for one sample; empty before place()
  std::vector<std::shared_ptr<Sequential>> stages_;  // share the layers of model_
  std::unique_ptr<Optimizer> optimizer_;             // null before place()
  bool has_stepped_ = false;                         // with the gradients that there are
  std::shared_ptr<BatchPosition> next_ = std::make_shared<BatchPosition>();  // of the next batch to train on
  std::shared_ptr<RankPool> ranks_;  // destroyed first, unless an output still has a backward to run
};

}  // namespace stagecoach
