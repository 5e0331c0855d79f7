#pragma once
/// @file
/// The books of a training run: the sums of the epoch in progress, the lines and files that come of them, and what to
/// do when a loss is no number or a stop is asked for. The training loop itself stays in the chapter's main.cpp.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chapters/common/epoch_log.h"
#include "chapters/common/epoch_sums.h"
#include "chapters/common/run_folder.h"
#include "chapters/common/state_outline.h"
#include "core/error.h"
#include "core/trace.h"
#include "nn/module.h"
#include "nn/optimizer.h"
#include "parallel/data_parallel/compression.h"
#include "parallel/launch/launch.h"
#include "parallel/pipeline/gather.h"
#include "parallel/pipeline/run_trace.h"

namespace stagecoach {

class RunLog {
 public:
  static constexpr std::int64_t kTracedSteps = 100;  ///< of the first epoch that is trained

  /// Call it before the model is made: memory is counted from here. Prints the settings, opens the --out folder, and
  /// starts the trace of the first steps.
  RunLog(const Settings& settings, Device device);
  /// For one of the ranks that share a model: each has its own log, and all call the same functions together. `layers`
  /// says who holds what; losses and right answers are added up on rank `loss_rank`, or on several ranks, of which it
  /// is one. Rank 0 prints and writes. `part` is the rank in `layers` whose layers this one has, where it is not
  /// itself: of replicas the first.
  RunLog(const Settings& settings, Communicator& comm, LayerRanks layers, int loss_rank, std::optional<int> part = {});
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  /// Prints `notes` on what will be run, one line each.
  void print_notes(const std::vector<std::string>& notes) const;
  /// At the end of the trace `predict` returns what to lay beside it in trace.json. All ranks call it together.
  using Predict = std::function<std::optional<PredictedStep>()>;
  void predict_by(Predict predict) { predict_ = std::move(predict); }
  /// No rank has all losses, so the progress bar shows none.
  void spread_losses() { shows_loss_ = false; }
  /// What `memory` holds, of the rank's shard of the batches, is restored and saved too; nothing if it is null. All
  /// ranks call it alike, before restore.
  void keep(CompressionMemory* memory, int shard);
  /// `model` and `optimizer` are the rank's, here and below. With --resume: reads the checkpoint into both. Then begins
  /// to write to --out; nothing was written before. Throws UsageError when no epoch is left to train.
  void restore(Module& model, Optimizer& optimizer);
  /// Where the run stands.
  const Progress& progress() const { return progress_; }
  bool epochs_left() const { return progress_.epoch <= settings_.training.epochs; }
  /// Where the training adds up its losses and right answers, on the device.
  EpochSums& sums() { return sums_; }

  /// Begins the epoch of progress(), of which `steps` make a whole one.
  void start_epoch(std::int64_t steps);
  /// The next batch of a DeviceLoader or StepLoader; enters how long it had to be waited for.
  template <class AnyLoader>
  auto next(AnyLoader& loader);
  /// Enters a step on `pictures` pictures; stops if asked. On a CPU throws UsageError when the loss is not finite; a
  /// GPU is not waited for, so there that shows at the end of the epoch.
  void add_step(std::int64_t pictures, const Module& model, const Optimizer& optimizer);

  // In place of add_step, for a pipeline that does not drain after each batch.
  /// Enters a step on `pictures` pictures.
  void note_step(std::int64_t pictures);
  /// Whether the epoch's batch `batch`, from 0, may begin: not when a stop was asked for before. All ranks get the same
  /// answers. Rank 0 gives them: for several batches at once, and at least up to `last`, which must be in the epoch. It
  /// names the last one that others may begin before it asks again.
  bool admits(std::int64_t batch, std::int64_t last);
  /// When a batch was not admitted, and the pipeline has drained: saves and throws Interrupted.
  void stop_if_refused(const Module& model, const Optimizer& optimizer);

  /// When a stop was asked for: saves and throws Interrupted, on all ranks at the same step. They ask rank 0 after each
  /// long step, and once for several short ones. The test after the last step calls it too.
  void stop_if_asked(const Module& model, const Optimizer& optimizer);
  /// Waits for the device and ends the training part of the epoch: what follows (the test) does not count as its time.
  void stop_clock();
  /// Prints the epoch's line and saves everything. `test_accuracy` is the sum over the ranks of what they give;
  /// `expected` what was foreseen. Throws UsageError when a weight is not finite.
  void finish_epoch(double test_accuracy, const Module& model, const Optimizer& optimizer,
                    const Expected& expected = {});
  /// Says where the results lie.
  void finish() const;

 private:
  RunLog(const Settings& settings, std::unique_ptr<Communicator> alone);

  bool writes_and_prints() const { return comm_.rank() == 0; }
  Checkpoints::Found newest_checkpoint();
  Checkpoints::Misfit misfit_with_run() const;
  void start_watch();
  void enter_time();
  void read_sums();
  void note_peak();
  void save(const Module& model, const Optimizer& optimizer, const EpochResult* result = nullptr);
  bool asked_to_stop();
  std::int64_t batches_at_once();
  [[noreturn]] void save_and_stop(const Module& model, const Optimizer& optimizer);
  double collect(double test_accuracy);
  void close_display();
  void require_finite(const Module& model) const;
  UsageError diverged(const char* what) const;
  void finish_trace();

  Settings settings_;
  std::unique_ptr<Communicator> alone_;  // of a program without ranks
  Communicator& comm_;
  LayerRanks layers_;
  int loss_rank_;
  bool shows_loss_ = true;
  int part_;  // the rank whose layers this one has: itself, or the one that it is a replica of
  CompressionMemory* memory_ = nullptr;  // of the rank's compression, if it keeps anything
  int shard_ = 0;                        // of the batches, for which it keeps it
  RunFolder folder_;
  StateOutline outline_;  // of all ranks together, on rank 0
  Progress progress_;
  EpochSums sums_;
  double mark_ = 0;         // time up to here is in progress_.seconds
  double waited_mark_ = 0;  // and waits up to here in progress_.waited
  std::unique_ptr<ProgressBar> bar_;
  std::unique_ptr<Trace> trace_;
  std::int64_t traced_steps_ = 0;
  Predict predict_;
  std::int64_t admitted_ = 0;  // batches of the epoch that may begin
  bool refused_ = false;       // the others may not
  std::int64_t unasked_ = 0;   // steps that end without a question whether to stop
  std::chrono::steady_clock::time_point admitted_at_;
  std::int64_t held_before_ = 0;
};

template <class AnyLoader>
auto RunLog::next(AnyLoader& loader) {
  const Span span("load", "data");
  const double before = loader.waited();
  auto batch = loader.next();
  if (comm_.clock().kind() == ClockKind::wall) {  // a virtual clock does not advance in it
    progress_.waited += loader.waited() - before;
  }
  return batch;
}

}  // namespace stagecoach
