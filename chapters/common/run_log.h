#pragma once
/// @file
/// The books of a training run: the sums of the epoch in progress, the lines and files that come of them, and what to
/// do when a loss is no number or a stop is asked for. The training loop itself stays in the chapter's main.cpp.

#include <chrono>
#include <memory>
#include <optional>

#include "chapters/common/epoch_log.h"
#include "chapters/common/epoch_sums.h"
#include "chapters/common/run_folder.h"
#include "core/error.h"
#include "core/trace.h"
#include "datasets/device_loader.h"

namespace stagecoach {

class RunLog {
 public:
  /// Call it before the model is made: memory is counted from here. Prints the settings, opens the --out folder, and
  /// starts the trace of the first steps.
  RunLog(const Settings& settings, Device device);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  /// With --resume: reads the checkpoint into both. Then begins to write to --out; nothing was written before. Throws
  /// UsageError when no epoch is left to train.
  void restore(Module& model, Optimizer& optimizer);
  /// Where the run stands.
  const Progress& progress() const { return progress_; }
  bool epochs_left() const { return progress_.epoch <= settings_.epochs; }
  /// Where the training adds up its losses and right answers, on the device.
  EpochSums& sums() { return sums_; }

  /// Begins the epoch of progress(), of which `steps` make a whole one.
  void start_epoch(std::int64_t steps);
  /// The next batch; enters how long it had to be waited for.
  std::optional<Batch> next(DeviceLoader& loader);
  /// Enters a step on `pictures` pictures; stops if asked. On a CPU throws UsageError when the loss is not finite; a
  /// GPU is not waited for, so there that shows at the end of the epoch.
  void add_step(std::int64_t pictures, const Module& model, const Optimizer& optimizer);
  /// When a stop was asked for: saves and throws Interrupted. The test after the last step calls it too.
  void stop_if_asked(const Module& model, const Optimizer& optimizer);
  /// Waits for the device and ends the training part of the epoch: what follows (the test) does not count as its time.
  void stop_clock();
  /// Prints the epoch's line and saves everything. Throws UsageError when a weight is not finite.
  void finish_epoch(double test_accuracy, const Module& model, const Optimizer& optimizer);
  /// Says where the results lie.
  void finish() const;

 private:
  using Clock = std::chrono::steady_clock;

  void enter_time();
  void read_sums();
  void note_peak();
  void close_display();
  void require_finite(const Module& model) const;
  UsageError diverged(const char* what) const;
  void finish_trace();

  Settings settings_;
  Device device_;
  RunFolder folder_;
  Progress progress_;
  EpochSums sums_;
  Clock::time_point mark_;  // time up to here is in progress_.seconds
  std::unique_ptr<ProgressBar> bar_;
  std::unique_ptr<Trace> trace_;
  std::int64_t traced_steps_ = 0;
  std::int64_t held_before_ = 0;
};

}  // namespace stagecoach
