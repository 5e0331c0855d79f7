#pragma once
/// @file
/// A rank of chapter 4: its replica of a stage, the actions that it runs, and what it does between epochs.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "chapters/04_pipedream/stream_plan.h"
#include "chapters/common/pipeline_steps.h"
#include "chapters/common/run.h"
#include "core/autograd/node.h"
#include "core/base/pull_range.h"
#include "parallel/schedule/ledger.h"
#include "parallel/schedule/pipedream.h"

namespace stagecoach {

/// What a rank trains with: its replica of a stage. With --no-version-check, while it exists autograd does not refuse a
/// backward on this thread whose weights have changed.
struct StageReplica : PipelineWorker {
  /// All ranks of the plan call it together; the arguments must outlive it.
  StageReplica(const StreamPlan& plan, const TrainTest& data, Rank& rank);

  const StreamPlan& plan;
  Rank& rank;
  int stage;
  int delay;                                     ///< the largest number of updates by which its gradients are late
  std::unique_ptr<Communicator> replicas;        ///< the ranks that hold this stage
  std::unique_ptr<UncheckedVersions> unchecked;  ///< with --no-version-check; otherwise null
};

/// The training of an epoch's remaining batches, as one list of actions for each rank: what training_batches() of Epoch
/// is for a pipeline that drains after each batch.
///
/// It decides where a run stops after a request: between two batches. No rank begins the later batch, or posts a
/// receive for it; the earlier batches run up to their updates. Then the pipeline is empty, and its state can be saved.
class ActionStream {
 public:
  /// Begins the training of the epoch. The arguments must outlive this object.
  ActionStream(StageReplica& replica, Epoch& epoch);

  /// The table of all ranks' actions for the remaining batches.
  const Schedule& schedule() const { return schedule_; }
  /// The version of the weights that each of them uses, or makes.
  const Ledger& ledger() const { return ledger_; }

  /// An action of this rank.
  struct Entry {
    std::size_t index = 0;  ///< in this rank's list
    Action action = {};
    BatchRange batches = {};  ///< that it serves, of those that remain: several for an update of a stage with replicas
  };
  /// Returns the range of this rank's actions, without those of batches after a stop. A loop's body is an action:
  /// reductions and updates are timed, an update has its learning rate, and its batches count as steps. The end of the
  /// range waits for all sends; if batches were left out, it saves and throws Interrupted.
  auto actions() {
    return PullRange([this] { return next(); });
  }

 private:
  const Entry* next();
  void end_action();
  bool may_begin(int batch);

  StageReplica& replica_;
  Epoch& epoch_;
  std::int64_t images_;  // in the whole epoch
  std::int64_t batches_done_ = 0;
  int batches_ = 0;  // that remain
  Schedule schedule_;
  Ledger ledger_;
  int ahead_ = 0;  // see batches_ahead
  std::size_t next_index_ = 0;
  Entry entry_;  // in progress
  std::optional<ActionLog::Scope> timed_;
};

/// Updates the weights after a batch by hand: sets the learning rate, which may depend on the delay of gradients, runs
/// the optimizer's step, and sets the gradients to zero.
void update(StageReplica& replica, const Epoch& epoch);

/// Called at the end of an epoch. Throws Error unless all replicas of the stage have the same weights. Then copies the
/// batch norm statistics of the first replica to the others, as each replica has seen other micro-batches.
void sync_replicas(StageReplica& replica);

/// Tests the model: ranks that hold the last stage count correct predictions. Only a few batches are in flight at once:
/// without backwards, nothing else would limit how far ahead the first stage runs.
void evaluate(StageReplica& replica, Epoch& epoch);

}  // namespace stagecoach
