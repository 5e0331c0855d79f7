#pragma once
/// @file
/// The state of a training that is saved to --out and restored with --resume: weights, optimizer, and what a
/// compression of gradients keeps.

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

/// What one rank has of a training.
struct RankRole {
  LayerRanks layers = {};              ///< which rank holds which layer; of replicas the first. Empty: all on one rank
  std::string stages = {};             ///< the stages and their ranks, to be printed
  std::optional<int> replica_of = {};  ///< the rank in `layers` that holds the same layers, if it is another one
  int shard = 0;                       ///< the part of each batch that the rank trains on
  int loss_rank = 0;                   ///< the rank that adds up losses and correct predictions
  bool splits_losses = false;          ///< several ranks add them up: no rank has them all before the end of an epoch
};

/// One rank's. All ranks call the same functions together.
class RunState {
 public:
  RunState(const Settings& settings, Communicator& comm, const RankRole& role);

  /// Takes the rank's model and optimizer, and the memory of its compression if there is one; all must outlive this
  /// object. With --resume reads the newest checkpoint into them, and returns its progress. Then the --out folder is
  /// this run's; nothing was written before. Throws UsageError when no epoch is left to train.
  std::optional<Progress> restore(Module& model, Optimizer& optimizer, CompressionMemory* memory);
  /// Saves everything; `result` after a finished epoch.
  void save(const Progress& next, const EpochResult* result = nullptr);
  /// Reads back what was saved last. Throws DataError unless --resume would go on at `progress`.
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
  int layers_of_;  // the rank in role_.layers whose layers this one has
  RunFolder folder_;
  StateOutline outline_;  // of all ranks together, on rank 0
  Module* model_ = nullptr;
  Optimizer* optimizer_ = nullptr;
  CompressionMemory* memory_ = nullptr;
};

}  // namespace stagecoach
