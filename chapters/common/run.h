#pragma once
/// @file
/// A training run, and the one loop that all chapters share:
///
///   Run run(settings, device);                       // prints the settings
///   run.restore(model, optimizer);                   // with --resume from a checkpoint; opens --out
///   for (Epoch& epoch : run.epochs()) {              // up to --epochs; prints and saves each
///     for (const Batch& batch : epoch.train(loader)) // times each step; stops on SIGINT, saved
///       …                                            // the chapter's idea
///     for (const Batch& batch : epoch.test(test_loader))
///       …
///   }
///
/// What is measured is in epoch_meter.h, what is printed in console.h and epoch_log.h, what is saved in run_state.h and
/// run_folder.h, how all ranks stop together in stop_protocol.h, and the trace in step_trace.h.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chapters/common/console.h"
#include "chapters/common/epoch_meter.h"
#include "chapters/common/pull_range.h"
#include "chapters/common/run_state.h"
#include "chapters/common/step_trace.h"
#include "chapters/common/stop_protocol.h"
#include "core/trace.h"
#include "nn/module.h"
#include "nn/optimizer.h"

namespace stagecoach {

class Epoch;

/// One rank's side of a run; the ranks that share a model each have one, and all call the same functions together.
class Run {
 public:
  /// Make it before the model: memory is counted from here. Prints the settings, makes the --out folder, catches
  /// signals, and starts the trace of the first steps.
  Run(const Settings& settings, Device device);
  Run(const Settings& settings, Communicator& comm, const RankRole& role);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Prints `notes` on what will be run, one per line.
  void print_notes(const std::vector<std::string>& notes) const;
  /// Takes the rank's model and optimizer, and the memory of its compression if there is one: all are saved after each
  /// epoch, and read from the checkpoint with --resume. They must outlive the run. Throws UsageError when no epoch is
  /// left to train.
  void restore(Module& model, Optimizer& optimizer, CompressionMemory* memory = nullptr);
  /// At the end of the trace `predict` returns what to show beside it in trace.json. All ranks call it together.
  void predict_by(StepTrace::Predict predict) { trace_.predict_by(std::move(predict)); }
  /// The epochs that are left to train; after the last one prints where the results are.
  auto epochs() {
    return PullRange([this] { return next_epoch(); });
  }

 private:
  friend class Epoch;
  Run(const Settings& settings, std::unique_ptr<Communicator> self_comm);
  bool prints() const { return comm_.rank() == 0; }
  Epoch* next_epoch();

  Settings settings_;
  std::unique_ptr<Communicator> self_comm_;  // of a program without ranks
  Communicator& comm_;
  RankRole role_;
  RunState state_;
  EpochMeter meter_;
  StopProtocol stop_;
  StepTrace trace_;
  std::unique_ptr<Epoch> epoch_;  // the one in progress
};

/// The epoch in progress: its batches, and what is known of it.
class Epoch {
 public:
  explicit Epoch(Run& run) : run_(run) {}
  Epoch(const Epoch&) = delete;
  Epoch& operator=(const Epoch&) = delete;

  /// The epoch's batches from a DeviceLoader or MicroBatchLoader; of a resumed epoch those that are left. After each
  /// one the step counts as done. When a stop was asked for, all ranks then save and throw Interrupted. On a CPU throws
  /// UsageError when the loss is not finite; for a GPU, which is not waited for, that shows at the end of the epoch.
  template <class AnyLoader>
  auto train(AnyLoader& loader) {
    start_training(loader);
    return PullRange([this, &loader, batch = decltype(loader.next())()]() mutable {
      if (batch) {
        add_step(batch->global_size);
        stop_if_asked();
        batch.reset();  // its memory may hold the next one
      }
      batch = next_batch(loader);
      if (!batch) {
        finish_training();
      }
      return batch ? &*batch : nullptr;
    });
  }
  /// The batches of the test; stops in between too. Its time does not count.
  template <class AnyLoader>
  auto test(AnyLoader& loader) {
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

  /// Where a training adds up its losses and correct predictions, on the device. The same tensors in all epochs.
  EpochSums& train_sums() { return run_.meter_.train_sums(); }
  /// Where a test does; the sum over the ranks is the test accuracy.
  EpochSums& test_sums() { return run_.meter_.test_sums(); }
  /// What the training should have taken, for the epoch's line of metrics.
  void set_prediction(const Prediction& prediction) { prediction_ = prediction; }

  // The parts of train() and test(), for a pipeline that does not drain after each batch (chapter 4).
  std::int64_t number() const { return run_.meter_.progress().epoch; }  ///< from 1
  std::int64_t steps_done() const { return run_.meter_.progress().step; }
  /// Starts the loader at the first batch that is left.
  template <class AnyLoader>
  void start_training(AnyLoader& loader) {
    loader.start_epoch(number(), steps_done());
    start_clock(loader.batches());
  }
  /// The loader's next batch, or nothing after the last; a wait for it counts as idle time.
  template <class AnyLoader>
  auto next_batch(AnyLoader& loader) {
    const Span span("load", "data");
    const double before = loader.waited();
    auto batch = loader.next();
    run_.meter_.add_load_wait(loader.waited() - before);
    return batch;
  }
  /// Whether batch `batch` of the epoch may begin, as in StopProtocol.
  bool may_begin(std::int64_t batch, std::int64_t last) { return run_.stop_.may_begin(batch, last); }
  /// Counts a step on `images` images.
  void add_step(std::int64_t images);
  /// When a batch was not allowed to begin, and the pipeline has drained: saves and throws Interrupted.
  void stop_if_refused();
  /// When a stop was asked for: saves and throws Interrupted, on all ranks at the same step.
  void stop_if_asked();
  /// Waits for the device, and ends the time of the training.
  void finish_training();
  void start_test() { run_.meter_.start_test(); }
  void add_test_images(std::int64_t images) { run_.meter_.add_test_images(images); }

 private:
  friend class Run;
  void start_clock(std::int64_t steps);
  void read_sums();
  void require_finite_weights() const;
  UsageError diverged(const char* what) const;
  [[noreturn]] void save_and_stop();
  void finish();

  Run& run_;
  std::optional<ProgressBar> bar_;
  Prediction prediction_;
};

}  // namespace stagecoach
