#include "chapters/common/step_loader.h"

#include <algorithm>
#include <utility>

#include "chapters/common/micro_batches.h"

namespace stagecoach {

StepLoader::StepLoader(Loader loader, std::int64_t samples, std::int64_t batch_size, std::int64_t microbatches,
                       Device device, Needs needs, const Shard& shard)
    : loader_(std::move(loader), device),
      samples_(samples),
      batch_size_(batch_size),
      microbatches_(microbatches),
      needs_(needs),
      shard_(shard) {}

void StepLoader::start_epoch(std::int64_t epoch, std::int64_t first_batch) {
  next_batch_ = first_batch;
  if (needs_ == Needs::data) {
    loader_.start_epoch(epoch, first_batch);
  }
}

std::optional<Step> StepLoader::next() {
  if (next_batch_ >= batches()) {
    return std::nullopt;
  }
  Step step;
  step.pictures = std::min(batch_size_, samples_ - next_batch_++ * batch_size_);
  step.sizes = micro_batch_sizes(share_of(step.pictures, shard_.index, shard_.of).count, microbatches_);
  if (needs_ == Needs::data) {
    const std::optional<Batch> batch = loader_.next();
    step.images = micro_batches(batch->images, microbatches_);
    step.labels = micro_batches(batch->labels, microbatches_);
  }
  return step;
}

}  // namespace stagecoach
