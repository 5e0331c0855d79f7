#pragma once
/// @file
/// A training run, for the chapters and for programs of your own (docs/examples/train_your_own.cpp):
///
///   Run run(options, device);                        // prints the options' header
///   run.set_up_checkpoints(data, model, optimizer);  // to continue a run, loads both; opens the folder
///   for (Epoch& epoch : run.epochs()) {              // those that are left; after each prints its line and saves
///     for (const Batch& batch : epoch.training_batches(train_loader))  // times each step; on SIGINT saves and stops
///       …                                                              // the training step
///     for (const Batch& batch : epoch.test_batches(test_loader))
///       …
///   }
///
/// epoch_meter.h has the measurements, console.h and epoch_log.h what is printed, run_folder.h and checkpoints.h what
/// is saved, stop_protocol.h how all ranks stop together, and step_trace.h the trace.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/pull_range.h"
#include "core/trace.h"
#include "nn/module.h"
#include "nn/optimizer.h"
#include "parallel/comm/keep_alive.h"
#include "parallel/training/console.h"
#include "parallel/training/epoch_meter.h"
#include "parallel/training/predictor.h"
#include "parallel/training/run_folder.h"
#include "parallel/training/run_options.h"
#include "parallel/training/step_trace.h"
#include "parallel/training/stop_protocol.h"

namespace stagecoach {

class Epoch;

/// One rank's side of a run. Each rank that trains the model has one, and all call the same functions together.
class Run {
 public:
  /// Must be constructed before the model, since memory is counted from here. Prints the header, creates the folder,
  /// installs the signal handlers, and starts the trace of the first steps.
  Run(const RunOptions& options, Device device);
  /// For a single program on several devices, which sums losses and correct predictions on the last one.
  Run(const RunOptions& options, const std::vector<Device>& devices);
  /// For a single program with a wrapper whose ranks do the work: Pipe::role(), DataParallel::role(). It measures and
  /// traces them. The sums of losses and correct predictions are on the device of the last one.
  Run(const RunOptions& options, const RankRole& role);
  Run(const RunOptions& options, Communicator& comm, const RankRole& role);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Replaces the role, where it is known only when the model is built: before set_up_checkpoints().
  void set_role(const RankRole& role);
  /// Prints `notes` about the run, one per line.
  void print_notes(const std::vector<std::string>& notes) const;
  /// To continue a run, loads its newest checkpoint into the rank's model and optimizer. From then on epochs() saves
  /// both after each epoch, and when it stops early, with the fingerprint of rank 0's `data`. They must outlive the
  /// run, and all runs need them. Nothing is written to the folder before this call. Throws UsageError if no epoch is
  /// left to train, and DataError if the checkpoint was trained on other data (require_same_data).
  void set_up_checkpoints(const TrainTest& data, Module& model, Optimizer& optimizer);
  /// Shows the times that `predictor` predicts beside the measured ones, in metrics.jsonl and trace.json. All ranks
  /// call it before epochs().
  void predict_with(Predictor predictor) { predictor_ = std::move(predictor); }
  /// Returns the range of the epochs that are left to train. After the last one it prints where the results are.
  auto epochs() {
    return PullRange([this] { return next_epoch(); });
  }

 private:
  friend class Epoch;
  Run(const RunOptions& options, std::unique_ptr<Communicator> self_comm, const RankRole& role,
      const std::vector<Device>& devices);
  Run(const RunOptions& options, Communicator& comm, const RankRole& role, const std::vector<Device>& devices);
  bool prints() const { return comm_.rank() == 0; }
  Epoch* next_epoch();
  /// Calls `body`, in which some ranks read or write files of the run and the others wait for them, however slow the
  /// disk is. All ranks call it together.
  void with_files(const std::function<void()>& body);
  /// Throws DataError in a process whose data are not those of rank 0's.
  void require_data_of_rank_zero(const TrainTest& data);
  /// `batches` is the number of them in an epoch.
  void load_checkpoint(std::int64_t batches);
  Checkpoints::Found newest_checkpoint() const;
  /// Saves everything. `result` is given after a finished epoch.
  void save(const EpochResult* result = nullptr);

  RunOptions options_;
  std::unique_ptr<Communicator> self_comm_;  // of a program with one rank
  Communicator& comm_;
  RankRole role_;
  int owner_of_layers_;  // the rank in role_.layers that has the same layers as this one
  RunFolder folder_;
  EpochMeter meter_;
  StopProtocol stop_;
  KeepAlive keep_alive_;
  StepTrace trace_;
  Predictor predictor_;
  StateOutline outline_;  // on rank 0: of all ranks together
  Module* model_ = nullptr;
  Optimizer* optimizer_ = nullptr;
  double learning_rate_ = 0;          // the optimizer's at first
  std::vector<EpochResult> results_;  // of the epochs that this run has finished, for the summary
  const char* summary_place_ = "rank";
  std::unique_ptr<Epoch> epoch_;  // the one in progress
};

/// The epoch in progress: its batches and its sums.
class Epoch {
 public:
  explicit Epoch(Run& run) : run_(run) {}
  Epoch(const Epoch&) = delete;
  Epoch& operator=(const Epoch&) = delete;

  /// Returns the range of the epoch's batches from a DeviceLoader, or a loader with its functions; of a resumed epoch,
  /// those that are left. The end of the loop's body ends a step. If a stop was requested, all ranks then save and
  /// throw Interrupted; where a Pipe adds up the gradients of several batches, after the last of them. Throws
  /// UsageError if the loss is not finite: on a CPU after that step; on a GPU at the end of the epoch, since reading
  /// the loss earlier would mean waiting for the device.
  template <class AnyLoader>
  auto training_batches(AnyLoader& loader) {
    start_training(loader);
    return PullRange([this, &loader, batch = decltype(loader.next())()]() mutable {
      if (batch) {
        add_step(batch->global_size);
        stop_if_asked();
        batch.reset();  // so that the next batch can reuse its memory
      }
      batch = next_batch(loader);
      batch ? set_learning_rate() : finish_training();
      return batch ? &*batch : nullptr;
    });
  }
  /// Returns the range of the test's batches. It can be stopped between batches too. Its time does not count.
  template <class AnyLoader>
  auto test_batches(AnyLoader& loader) {
    start_test();
    loader.start_epoch(1);
    return PullRange([this, &loader, batch = decltype(loader.next())()]() mutable {
      if (batch) {
        add_test_images(batch->global_size);
        batch.reset();
        stop_if_asked();
      }
      batch = loader.next();
      return batch ? &*batch : nullptr;
    });
  }

  /// Returns the sums of losses and correct predictions that training adds to, on the device. The tensors are the same
  /// in all epochs.
  EpochSums& train_sums() { return run_.meter_.train_sums(); }
  /// Returns the sums that a test adds to; the ranks' sums together give the test accuracy.
  EpochSums& test_sums() { return run_.meter_.test_sums(); }

  // The parts of training_batches() and test_batches(), for a pipeline that does not drain after each batch.
  std::int64_t number() const { return run_.meter_.progress().epoch; }  ///< from 1
  std::int64_t steps_done() const { return run_.meter_.progress().step; }
  /// Starts the loader at the first remaining batch.
  template <class AnyLoader>
  void start_training(AnyLoader& loader) {
    loader.start_epoch(number(), steps_done());
    start_clock(loader.batch_count());
  }
  /// Returns the loader's next batch, or nothing after the last one. Time spent waiting for it counts as idle time.
  template <class AnyLoader>
  auto next_batch(AnyLoader& loader) {
    const Span span("load", "data");
    const Clock& clock = run_.comm_.clock();
    const double before = loader.waited();
    const double before_by_clock = clock.waited();
    const double worked_before = run_.meter_.worked();
    auto batch = loader.next();
    run_.meter_.add_load(run_.meter_.worked() - worked_before, loader.waited() - before,
                         clock.waited() - before_by_clock);
    return batch;
  }
  /// Returns whether batch `batch` of the epoch may begin (see StopProtocol::may_begin).
  bool may_begin(std::int64_t batch, std::int64_t last) { return run_.stop_.may_begin(batch, last); }
  /// Returns the factor of the learning rate for batch `batch` of the epoch, counted from 0 (see RunOptions::rate).
  double rate_factor(std::int64_t batch) const;
  /// Counts a step of `images` images.
  void add_step(std::int64_t images);
  /// Saves and throws Interrupted if a batch was not allowed to begin. Called after the pipeline has drained.
  void stop_if_refused();
  /// Saves and throws Interrupted if a stop was requested, on all ranks at the same step.
  void stop_if_asked();
  /// Waits for the device, stops the clock of the training, and predicts its time.
  void finish_training();
  void start_test() { run_.meter_.start_test(); }
  void add_test_images(std::int64_t images) { run_.meter_.add_test_images(images); }

 private:
  friend class Run;
  void start_clock(std::int64_t steps);
  void set_learning_rate();
  void read_sums();
  void require_finite_weights() const;
  UsageError diverged(const char* what) const;
  [[noreturn]] void save_and_stop();
  void finish();

  Run& run_;
  std::int64_t steps_ = 0;  // of the whole epoch
  std::optional<ProgressBar> bar_;
  Prediction prediction_;
};

}  // namespace stagecoach
