#pragma once
/// @file
/// The micro-batches of many batches, one after the other, as one rank of a pipeline takes them.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "chapters/common/micro_batch_loader.h"
#include "parallel/pipeline/pipeline.h"

namespace stagecoach {

class MicrobatchIterator {
 public:
  /// `next` returns the next batch, cut into `microbatches`; it is called only when a micro-batch of it is taken.
  MicrobatchIterator(std::function<std::optional<MicroBatches>()> next, std::int64_t microbatches);

  /// What a run of a pipeline takes: micro-batches from batch `first_batch` on, of these sizes. They must be taken
  /// in rising order, also from run to run. This object must outlive the result.
  StepData data(std::vector<std::int64_t> sizes, std::int64_t first_batch = 0);
  /// The labels of a micro-batch of the present run; in that order, or of the batch that was taken last.
  const Tensor& labels(int microbatch) { return batch_of(microbatch).labels[within_batch(microbatch)]; }

 private:
  std::size_t within_batch(int microbatch) const { return static_cast<std::size_t>(microbatch % microbatches_); }
  const MicroBatches& batch_of(int microbatch);

  std::function<std::optional<MicroBatches>()> next_;
  std::int64_t microbatches_;
  std::int64_t first_batch_ = 0;  // of the present run
  std::int64_t batches_ = 0;      // taken so far
  MicroBatches present_;          // the last of them
};

}  // namespace stagecoach
