#pragma once
/// @file
/// The trace of a run's first training steps, and with --profile the table of where their time went.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "chapters/common/run_folder.h"
#include "core/trace.h"
#include "parallel/comm/communicator.h"
#include "parallel/pipeline/run_trace.h"

namespace stagecoach {

class StepTrace {
 public:
  static constexpr std::int64_t kSteps = 100;  ///< of the first epoch that is trained
  /// Returns what the traced steps should have looked like. All ranks call it together.
  using Predict = std::function<std::optional<PredictedStep>()>;

  /// Records the calling thread from here on. With `profile` each span waits for the device's work to end.
  StepTrace(Communicator& comm, bool profile);
  ~StepTrace() { Trace::detach(); }
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  /// At the end of the recording `predict` is called; what it returns is shown beside it.
  void predict_by(Predict predict) { predict_ = std::move(predict); }
  /// Counts a step, and ends the recording after the last step that it is for.
  void add_step();
  /// Ends the recording, and writes and prints what it has; does nothing when that is done. All ranks call it.
  void finish(RunFolder& folder);

 private:
  Communicator& comm_;
  bool profile_;
  std::unique_ptr<Trace> trace_ = std::make_unique<Trace>();  // null once it is written
  Predict predict_;
  std::int64_t steps_ = 0;
};

}  // namespace stagecoach
