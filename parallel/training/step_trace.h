#pragma once
/// @file
/// The trace of a run's first training steps, and if it is profiled a table of how their time was spent.

#include <cstdint>
#include <memory>
#include <vector>

#include "core/trace.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/keep_alive.h"
#include "parallel/launch/rank_pool.h"
#include "parallel/pipeline/run_trace.h"
#include "parallel/training/predictor.h"
#include "parallel/training/run_folder.h"
#include "parallel/training/run_options.h"

namespace stagecoach {

class StepTrace {
 public:
  static constexpr std::int64_t kSteps = 100;  ///< of the first epoch of this run
  /// Starts recording the calling thread, and how much memory tensors on `devices` use. With `options.profile`, each
  /// span waits until the device's work has ended. With a pool, its ranks are recorded, and the calling thread on the
  /// track of rank 0, which waits while that thread works. `options` must outlive this object.
  StepTrace(Communicator& comm, const std::vector<Device>& devices, const RunOptions& options,
            std::shared_ptr<RankPool> pool = nullptr);
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  /// Begins the first step, which is step `number` of `epoch`, both from 1.
  void begin(std::int64_t epoch, std::int64_t number);
  /// Ends a step and begins the next one; ends the recording after the last step to record.
  void add_step();
  /// Ends the recording, then writes the trace, with the timeline that `predictor` predicts beside it, and prints the
  /// table. Does nothing if called again. All ranks call it; `keep_alive` is that of their run.
  void finish(RunFolder& folder, KeepAlive& keep_alive, const Predictor& predictor);

 private:
  void attach();
  void detach();

  Communicator& comm_;
  const RunOptions& options_;
  std::shared_ptr<RankPool> pool_;                            // may be null
  std::unique_ptr<Trace> trace_ = std::make_unique<Trace>();  // null once it is written
  std::int64_t steps_ = 0;
  TracedStep first_;  // of the traced steps, and the one in progress
  TracedStep step_;
};

}  // namespace stagecoach
