#pragma once
/// @file
/// Data, pipeline and tensor parallelism at once: what a rank of a mesh trains with.

#include <functional>
#include <map>
#include <memory>

#include "nn/layer_factory.h"
#include "nn/optimizer.h"
#include "nn/sequential.h"
#include "parallel/comm/communicator.h"
#include "parallel/launch/mesh.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/pipeline/rank_role.h"
#include "parallel/wrappers/pipe.h"

namespace stagecoach {

/// Trains a model on a mesh of ranks: `data` replicas share each batch, each replica is a pipeline, and the layers of a
/// stage may be cut over `tensor` ranks. Each rank holds the layers, or slices, of its own stages only.
///
///     launch({.ranks = sizes.ranks()}, [&](Rank& rank) {
///       MeshPipe pipe(rank.comm, sizes, make_model, {.chunks = 8, .loss = loss, .optimizer = adamw()});
///       Run run(options, rank.comm, pipe.role());
///       pipe.place({options.batch_size, 16});
///       run.set_up_checkpoints(data, pipe.layers(), pipe.optimizer());
///       …
///         epoch.train_sums().add_loss(pipe.train_step(batch.inputs, batch.targets, &epoch.train_sums().correct));
///     });
///
/// All ranks call the same functions together, with the same batches, of which each replica takes its share. The
/// weights are, bit for bit, those of one device that adds up the gradients of the replicas' shares in their order,
/// each the sum of its micro-batches', and computes cut layers slice by slice
/// (parallel/tensor_parallel/sliced_layers.h). So they do not depend on the stages and the schedule. Batch norm
/// normalises each micro-batch by itself; each replica's running statistics are those of its own shares, and a run
/// saves those of the first replica. For use by the rank's own thread.
class MeshPipe {
 public:
  /// Returns a new model, without memory. `layers` makes layers that are cut over the tensor group
  /// (nn/layer_factory.h). All others are whole on each of its ranks, which then compute the same.
  using MakeModel = std::function<std::shared_ptr<Sequential>(const LayerFactory& layers)>;

  /// Collective over `world`, which must outlive this object. Of the settings, `chunks` are the micro-batches of a
  /// replica, and `ranks`, `device` and `timeout` are those of the world. Without a split, stages have equally many
  /// layers. Tied weights may be cut, if both are in the same way. Throws UsageError unless the sizes make up the
  /// world, and as Pipe does.
  MeshPipe(Communicator& world, const MeshSizes& sizes, const MakeModel& make_model, PipeSettings settings = {});

  /// Gives this rank's layers memory, for inputs of this shape [N, …] and type. The first batch calls it. Throws as
  /// Pipe::place does.
  void place(const Shape& inputs, DType type);
  void place(const Shape& inputs) { place(inputs, settings_.type); }
  /// The same for a model with more inputs. Only the shapes and types of `example` count.
  void place(const PipeInput& example);

  /// Trains on a batch of N samples: a step with the gradients of the mean loss. Returns the sum of the losses that
  /// this rank has computed, which is 0 on most ranks; over all ranks, that is N times the mean loss. Where targets are
  /// labels, adds to `correct` ([] int32 on the rank's device), unless it is null, how many of those that this rank has
  /// computed were predicted (count_correct). Throws UsageError for tensors of other shapes or types, and for fewer
  /// samples than replicas.
  double train_step(const PipeInput& input, const Tensor& target, Tensor* correct = nullptr);
  /// Returns such a sum, and counts likewise, for a batch in evaluation mode.
  double evaluate(const PipeInput& input, const Tensor& target, Tensor* correct = nullptr);

  /// Returns what this rank has of the training, for a Run. A run may be resumed with other stages.
  RankRole role();
  /// Returns this rank's layers, which have memory after place().
  Sequential& layers() { return *layers_; }
  /// Returns their optimizer. To clip gradients, call clip_norm before Run::set_up_checkpoints, which makes the norm
  /// that of all ranks. Throws UsageError before place().
  Optimizer& optimizer();

 private:
  double run(const Schedule& schedule, const PipeInput& input, const Tensor& target, Tensor* correct);
  void average(int stage);

  Communicator& world_;
  MeshSizes sizes_;
  MeshPosition at_;
  Mesh mesh_;
  PipeSettings settings_;
  LossFunction loss_;
  std::shared_ptr<Sequential> model_;  // without memory, except for the layers of this rank
  Schedule schedule_;                  // of a replica
  Split split_;
  std::map<int, std::shared_ptr<Sequential>> stages_;  // of this rank; share its layers
  std::shared_ptr<Sequential> layers_;
  std::unique_ptr<Optimizer> optimizer_;  // null before place(), as is the pipeline
  std::unique_ptr<Pipeline> pipeline_;
  Shape sample_;  // of an input, [1, …]
  DType input_type_ = DType::float32;
};

}  // namespace stagecoach
