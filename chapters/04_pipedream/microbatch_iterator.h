#pragma once
/// @file
/// Iterates over the micro-batches of many batches, in the order in which one rank of a pipeline takes them.

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "chapters/common/micro_batch_loader.h"
#include "core/base/error.h"
#include "core/ops.h"
#include "parallel/pipeline/pipeline.h"

namespace stagecoach {

class MicrobatchIterator {
 public:
  /// `next` returns the next batch, split into `microbatches`. It is called only when a micro-batch of that batch is
  /// needed.
  MicrobatchIterator(std::function<std::optional<MicroBatches>()> next, std::int64_t microbatches)
      : next_(std::move(next)), microbatches_(microbatches) {}

  /// Returns the data for a run of a pipeline: micro-batches of these sizes, starting with batch `first_batch`. They
  /// must be taken in ascending order, also from one run to the next. This object must outlive the result.
  StepData data(std::vector<std::int64_t> sizes, std::int64_t first_batch = 0) {
    first_batch_ = first_batch;
    return {.input = [this](int i) { return normalize(batch_of(i).images[within_batch(i)]); },
            .labels = [this](int i) { return labels(i); },
            .samples = std::move(sizes)};
  }
  /// Returns the labels of a micro-batch of the current run. The order is the same, but labels of the last batch taken
  /// can be read again.
  const Tensor& labels(int microbatch) { return batch_of(microbatch).labels[within_batch(microbatch)]; }

 private:
  std::size_t within_batch(int microbatch) const { return static_cast<std::size_t>(microbatch % microbatches_); }

  /// Returns the batch of a micro-batch, and skips the batches before it, whose micro-batches other replicas take.
  const MicroBatches& batch_of(int microbatch) {
    const std::int64_t wanted = first_batch_ + microbatch / microbatches_;
    STAGECOACH_CHECK(wanted + 1 >= batches_,
                     "micro-batches must be requested in ascending order: expected batch {} or later, got {}",
                     batches_ - 1, wanted);
    while (batches_ <= wanted) {
      auto next = next_();
      STAGECOACH_CHECK(next.has_value(), "the epoch is too short: expected batch {1}, got the end after {0} batches",
                       batches_, wanted);
      present_ = std::move(*next);
      ++batches_;
    }
    return present_;
  }

  std::function<std::optional<MicroBatches>()> next_;
  std::int64_t microbatches_;
  std::int64_t first_batch_ = 0;  // of the current run
  std::int64_t batches_ = 0;      // taken so far
  MicroBatches present_;          // the last batch taken
};

}  // namespace stagecoach
