#pragma once
/// @file
/// The recorded passes of a stage.

#include <memory>
#include <vector>

#include "nn/sequential.h"
#include "parallel/pipeline/recorded_pass.h"

namespace stagecoach {

/// Has as many passes of a kind as micro-batches of that kind are in flight at a time.
class RecordedPasses {
 public:
  /// `layers` must have memory. Their forward must do the same each time and not wait for the device.
  explicit RecordedPasses(const Sequential& layers);

  /// Returns a pass that no other micro-batch uses: the caller's handle marks it as used. Returns null where nothing
  /// can be recorded: on a CPU, for parameters with gradient hooks, and once parameters have been given other memory
  /// (as versions of weights are), for the recordings would not follow.
  std::shared_ptr<RecordedPass> free_pass(const Tensor& x, const Tensor& labels, bool wants_gradient, bool is_training);

 private:
  bool can_record();

  std::shared_ptr<RecordedGradients> gradients_;
  std::vector<std::shared_ptr<Storage>> weights_;  // of the parameters
  bool weights_have_moved_ = false;
  std::vector<std::shared_ptr<RecordedPass>> passes_;
};

}  // namespace stagecoach
