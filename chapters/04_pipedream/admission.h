#pragma once
/// @file
/// Which actions of a rank are still run when a stop is asked for: those of the batches that were let in before. Then
/// the pipeline drains, and can be saved.

#include <cstdint>
#include <vector>

#include "chapters/04_pipedream/stream_plan.h"
#include "chapters/common/run.h"

namespace stagecoach {

class Admission {
 public:
  /// For one run of `schedule`, from batch `first_batch` of `epoch`, which has `batches`, on. All must outlive this
  /// object.
  Admission(const Schedule& schedule, int rank, std::int64_t first_batch, std::int64_t batches, Epoch& epoch);

  /// Whether to run the action at `place` in the rank's list.
  bool admits(std::size_t place);
  /// The batches, counted in the epoch, whose gradients the update or reduction at `place` uses.
  std::vector<std::int64_t> batches_of(std::size_t place);
  /// All actions are done or left out. Each rank calls it, so that each has heard the last answer.
  void finish();

 private:
  std::int64_t batch_of(int microbatch) const { return first_batch_ + microbatch / schedule_.batch; }

  const Schedule& schedule_;
  const std::vector<Action>& actions_;
  std::int64_t first_batch_;
  std::int64_t batches_;
  Epoch& epoch_;
};

}  // namespace stagecoach
