#pragma once
/// @file
/// What a rank has of a training: how programs tell a Run (parallel/training/run.h) who saves what.

#include <memory>
#include <optional>
#include <string>

#include "nn/optimizer.h"
#include "parallel/comm/communicator.h"
#include "parallel/pipeline/gather.h"

namespace stagecoach {

/// Layers without the slices and shards of parallel training, as one device has them.
struct WholeLayers {
  NamedTensors parameters;
  NamedTensors buffers;
  NamedTensors optimizer;  ///< the state of these layers, and at the end the count of steps
};

/// A model of which each rank has other parts than layers: it is saved by layers all the same, so that any number of
/// ranks can go on with it. All ranks call these functions together.
class ShardedModel {
 public:
  virtual ~ShardedModel() = default;
  /// Returns copies of the layers that this rank saves. Until it returns, a rank has one more unit in memory.
  virtual WholeLayers whole_layers(const Optimizer& optimizer) const = 0;
  /// Copies their parts of such layers into the ranks' models and optimizers. `mine` are those of this rank. Throws
  /// DataError, whose text begins with `what`, if they do not fit.
  virtual void take_layers(const WholeLayers& mine, Optimizer& optimizer, const std::string& what) = 0;
};

class RankPool;

/// The parts of a batch whose gradients are added, and of a layer whose sums are: they decide how sums are rounded.
struct BatchParts {
  int replicas = 0;      ///< the ranks, or pipelines, that share each batch; 0: all ranks
  int microbatches = 1;  ///< of each of them
  int slices = 1;        ///< of a cut layer
  bool operator==(const BatchParts&) const = default;
};

/// The part of the training that one rank has.
struct RankRole {
  LayerRanks layers = {};   ///< which rank holds which layer (the first of its replicas). Empty: all on one rank
  std::string stages = {};  ///< the stages and their ranks, as printed
  std::optional<int> replica_of = {};    ///< the rank in `layers` with the same layers, if it is another rank
  int loss_rank = 0;                     ///< the rank that sums losses and correct predictions
  bool splits_losses = false;            ///< several ranks sum them: no rank has the total before the end of an epoch
  std::string profile = {};              ///< the text of profile.json; empty: it is not written
  Communicator* tensor_group = nullptr;  ///< the ranks that hold the slices of these layers; null: they are whole
  ShardedModel* sharded = nullptr;       ///< what has shards of all layers; null: this rank has its own
  double ideal_idle = 0;  ///< the share of a step in which the ranks wait, if all stages take equally long
  std::optional<BatchParts> parts = {};  ///< empty: not known, so that a resumed run does not say whether they changed
  /// The ranks of a program without launch(): then this is the role of the calling thread, and a Run measures theirs.
  std::shared_ptr<RankPool> pool = {};
};

}  // namespace stagecoach
