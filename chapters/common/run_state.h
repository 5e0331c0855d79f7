#pragma once
/// @file
/// The training state that is saved to --out and restored with --resume: weights, optimizer state, and the state of
/// gradient compression.

#include <optional>
#include <string>

#include "chapters/common/run_folder.h"
#include "chapters/common/state_outline.h"
#include "nn/module.h"
#include "nn/optimizer.h"
#include "parallel/comm/communicator.h"
#include "parallel/data_parallel/compression.h"
#include "parallel/pipeline/gather.h"

namespace stagecoach {

/// The part of the training that one rank has.
struct RankRole {
  LayerRanks layers = {};   ///< which rank holds which layer (the first of its replicas). Empty: all on one rank
  std::string stages = {};  ///< the stages and their ranks, as printed
  std::optional<int> replica_of = {};  ///< the rank in `layers` with the same layers, if it is another rank
  int shard = 0;                       ///< the part of each batch that the rank trains on
  int loss_rank = 0;                   ///< the rank that sums losses and correct predictions
  bool splits_losses = false;          ///< several ranks sum them: no rank has the total before the end of an epoch
};

/// The state of one rank. All ranks call the same functions together.
class RunState {
 public:
  RunState(const Settings& settings, Communicator& comm, const RankRole& role);

  /// Registers the rank's model and optimizer, and the memory of its compression if there is one; all must outlive this
  /// object. With --resume, reads the newest checkpoint into them, and returns its progress. Nothing is written to the
  /// --out folder before this call. Throws UsageError if no epoch is left to train.
  std::optional<Progress> restore(Module& model, Optimizer& optimizer, CompressionMemory* memory);
  /// Saves everything. `result` is given after a finished epoch.
  void save(const Progress& next, const EpochResult* result = nullptr);
  /// Reads the last checkpoint. Throws DataError unless --resume would continue at `progress`.
  void require_resumable(const Progress& progress) const;

  const Module& model() const { return *model_; }
  RunFolder& folder() { return folder_; }

 private:
  Checkpoints::Found newest_checkpoint();
  Progress load_checkpoint();
  Checkpoints::Misfit misfit_with_run() const;

  Settings settings_;
  Communicator& comm_;
  RankRole role_;
  int layers_of_;  // the rank in role_.layers that has the same layers as this one
  RunFolder folder_;
  StateOutline outline_;  // on rank 0: of all ranks together
  Module* model_ = nullptr;
  Optimizer* optimizer_ = nullptr;
  CompressionMemory* memory_ = nullptr;
};

}  // namespace stagecoach
