#include "chapters/04_pipedream/batch_stream.h"

#include <utility>

#include "core/error.h"
#include "core/ops.h"

namespace stagecoach {

BatchStream::BatchStream(std::function<std::optional<MicroBatches>()> next, std::int64_t microbatches)
    : next_(std::move(next)), microbatches_(microbatches) {}

/// Batches before it that were not asked for, as other replicas have them, are passed over.
const MicroBatches& BatchStream::batch_of(int microbatch) {
  const std::int64_t wanted = first_batch_ + microbatch / microbatches_;
  STAGECOACH_CHECK(wanted + 1 >= batches_, "stream: batch {} was asked for after batch {}", wanted, batches_ - 1);
  while (batches_ <= wanted) {
    auto next = next_();
    STAGECOACH_CHECK(next.has_value(), "stream: batch {} is beyond the epoch's last", wanted);
    present_ = std::move(*next);
    ++batches_;
  }
  return present_;
}

StepData BatchStream::data(std::vector<std::int64_t> sizes, std::int64_t first_batch) {
  first_batch_ = first_batch;
  return {.input = [this](int i) { return normalize(batch_of(i).images[within_batch(i)]); },
          .labels = [this](int i) { return labels(i); },
          .samples = std::move(sizes)};
}

}  // namespace stagecoach
