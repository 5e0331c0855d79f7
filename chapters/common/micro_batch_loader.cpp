#include "chapters/common/micro_batch_loader.h"

#include <algorithm>

namespace stagecoach {

MicroBatchLoader::MicroBatchLoader(const Settings& settings, const Dataset& data, LoaderFor purpose, Device device,
                                   Needs needs, std::int64_t microbatches, const Shard& shard)
    : loader_(make_loader(settings.training, settings.world, data, purpose, needs == Needs::inputs_and_targets, shard),
              device),
      samples_(data.size()),
      batch_size_(settings.training.batch_size),
      microbatches_(microbatches),
      needs_(needs),
      shard_(shard),
      has_dropout_(settings.training.dropout > 0) {}

void MicroBatchLoader::start_epoch(std::int64_t epoch, std::int64_t first_batch) {
  epoch_ = epoch;
  next_batch_ = first_batch;
  if (needs_ != Needs::nothing) {
    loader_.start_epoch(epoch, first_batch);
  }
}

std::optional<MicroBatches> MicroBatchLoader::next() {
  if (next_batch_ == left_out_ && next_batch_ < batch_count()) {
    ++next_batch_;
    if (needs_ != Needs::nothing) {
      loader_.next();
    }
  }
  if (next_batch_ >= batch_count()) {
    return std::nullopt;
  }
  MicroBatches split;
  split.global_size = std::min(batch_size_, samples_ - next_batch_ * batch_size_);
  const Share share = share_of(split.global_size, shard_.index, shard_.of);
  split.sizes = micro_batch_sizes(share.count, microbatches_);
  if (has_dropout_) {
    split.position = {(epoch_ - 1) * batch_count() + next_batch_, share.first};
  }
  ++next_batch_;
  if (needs_ != Needs::nothing) {
    const std::optional<Batch> batch = loader_.next();
    split.inputs = micro_batches(batch->inputs, microbatches_);
    split.targets = micro_batches(batch->targets, microbatches_);
  }
  return split;
}

}  // namespace stagecoach
