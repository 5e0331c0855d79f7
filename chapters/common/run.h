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
#include <iterator>
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

class Epochs;

/// One rank's side of a run; the ranks that share a model each have one, and all call the same functions together.
class Run {
 public:
  /// Make it before the model: memory is counted from here. Prints the settings, makes the --out folder, catches
  /// signals, and starts the trace of the first steps.
  Run(const Settings& settings, Device device);
  Run(const Settings& settings, Communicator& comm, const RankRole& role);

  /// Prints `notes` on what will be run, one per line.
  void print_notes(const std::vector<std::string>& notes) const;
  /// Takes the rank's model and optimizer, and the memory of its compression if there is one: all are saved after each
  /// epoch, and read from the checkpoint with --resume. They must outlive the run. Throws UsageError when no epoch is
  /// left to train.
  void restore(Module& model, Optimizer& optimizer, CompressionMemory* memory = nullptr);
  /// At the end of the trace `predict` returns what to show beside it in trace.json. All ranks call it together.
  void predict_by(StepTrace::Predict predict) { trace_.predict_by(std::move(predict)); }
  /// The epochs that are left to train; after the last one prints where the results are.
  Epochs epochs();

 private:
  friend class Epoch;
  friend class Epochs;
  Run(const Settings& settings, std::unique_ptr<Communicator> self);
  bool prints() const { return comm_.rank() == 0; }

  Settings settings_;
  std::unique_ptr<Communicator> self_;  // of a program without ranks
  Communicator& comm_;
  RankRole role_;
  RunState state_;
  EpochMeter meter_;
  StopProtocol stop_;
  StepTrace trace_;
};

template <class AnyLoader>
class TrainBatches;
template <class AnyLoader>
class TestBatches;

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
  TrainBatches<AnyLoader> train(AnyLoader& loader);
  /// The batches of the test; stops in between too. Its time does not count.
  template <class AnyLoader>
  TestBatches<AnyLoader> test(AnyLoader& loader);

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
  void start_training(AnyLoader& loader);
  /// The loader's next batch, or nothing after the last; a wait for it counts as idle time.
  template <class AnyLoader>
  auto next_batch(AnyLoader& loader);
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
  void start_test();
  void add_test_images(std::int64_t images) { run_.meter_.add_test_images(images); }

 private:
  friend class Epochs;
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

/// What Run::epochs returns: goes on to the next epoch when the last one is printed and saved.
class Epochs {
 public:
  explicit Epochs(Run& run) : run_(run) {}
  Epoch* next();
  auto begin() { return PullIterator(*this); }
  static std::default_sentinel_t end() { return {}; }

 private:
  Run& run_;
  std::optional<Epoch> epoch_;
};

/// What Epoch::train returns.
template <class AnyLoader>
class TrainBatches {
 public:
  TrainBatches(Epoch& epoch, AnyLoader& loader) : epoch_(epoch), loader_(loader) { epoch.start_training(loader); }

  const auto* next() {
    if (batch_) {
      const std::int64_t images = batch_->global_size;
      epoch_.add_step(images);
      epoch_.stop_if_asked();
      batch_.reset();  // its memory may hold the next one
    }
    batch_ = epoch_.next_batch(loader_);
    if (!batch_) {
      epoch_.finish_training();
    }
    return batch_ ? &*batch_ : nullptr;
  }
  auto begin() { return PullIterator(*this); }
  static std::default_sentinel_t end() { return {}; }

 private:
  Epoch& epoch_;
  AnyLoader& loader_;
  decltype(loader_.next()) batch_;
};

/// What Epoch::test returns.
template <class AnyLoader>
class TestBatches {
 public:
  TestBatches(Epoch& epoch, AnyLoader& loader) : epoch_(epoch), loader_(loader) {
    epoch.start_test();
    loader.start_epoch(1);
  }

  const auto* next() {
    if (batch_) {
      epoch_.add_test_images(batch_->global_size);
      batch_.reset();
      epoch_.stop_if_asked();
    }
    batch_ = loader_.next();
    return batch_ ? &*batch_ : nullptr;
  }
  auto begin() { return PullIterator(*this); }
  static std::default_sentinel_t end() { return {}; }

 private:
  Epoch& epoch_;
  AnyLoader& loader_;
  decltype(loader_.next()) batch_;
};

template <class AnyLoader>
TrainBatches<AnyLoader> Epoch::train(AnyLoader& loader) {
  return {*this, loader};
}

template <class AnyLoader>
TestBatches<AnyLoader> Epoch::test(AnyLoader& loader) {
  return {*this, loader};
}

template <class AnyLoader>
void Epoch::start_training(AnyLoader& loader) {
  loader.start_epoch(number(), steps_done());
  start_clock(loader.batches());
}

template <class AnyLoader>
auto Epoch::next_batch(AnyLoader& loader) {
  const Span span("load", "data");
  const double before = loader.waited();
  auto batch = loader.next();
  run_.meter_.add_load_wait(loader.waited() - before);
  return batch;
}

}  // namespace stagecoach
