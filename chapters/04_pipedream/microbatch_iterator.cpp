#include "chapters/04_pipedream/microbatch_iterator.h"

#include <utility>

#include "core/error.h"
#include "core/ops.h"

namespace stagecoach {

MicrobatchIterator::MicrobatchIterator(std::function<std::optional<MicroBatches>()> next, std::int64_t microbatches)
    : next_(std::move(next)), microbatches_(microbatches) {}

/// Returns the batch of a micro-batch, and skips the batches before it, whose micro-batches other replicas take.
const MicroBatches& MicrobatchIterator::batch_of(int microbatch) {
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

StepData MicrobatchIterator::data(std::vector<std::int64_t> sizes, std::int64_t first_batch) {
  first_batch_ = first_batch;
  return {.input = [this](int i) { return normalize(batch_of(i).images[within_batch(i)]); },
          .labels = [this](int i) { return labels(i); },
          .samples = std::move(sizes)};
}

}  // namespace stagecoach
