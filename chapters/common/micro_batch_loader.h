#pragma once
/// @file
/// Loads batches as micro-batches for the ranks of a pipeline: images on the first stage, labels on the last. The
/// loaders of all ranks have the same order, so that images and labels match.

#include <cstdint>
#include <optional>

#include "chapters/common/micro_batches.h"
#include "datasets/device_loader.h"

namespace stagecoach {

class MicroBatchLoader {
 public:
  enum class Needs { nothing, data };  ///< `data` if the rank holds the first or the last stage

  /// `loader` returns `shard` of each batch of `batch_size`, out of `samples` images. It is split into `microbatches`
  /// parts, or into single images if it has fewer.
  MicroBatchLoader(Loader loader, std::int64_t samples, std::int64_t batch_size, std::int64_t microbatches,
                   Device device, Needs needs, const Shard& shard = {});

  /// As in Loader.
  std::int64_t batch_count() const { return loader_.batch_count(); }
  void start_epoch(std::int64_t epoch, std::int64_t first_batch = 0);
  std::optional<MicroBatches> next();
  double waited() const { return loader_.waited(); }

 private:
  DeviceLoader loader_;
  std::int64_t samples_;
  std::int64_t batch_size_;
  std::int64_t microbatches_;
  Needs needs_;
  Shard shard_;
  std::int64_t next_batch_ = 0;
};

}  // namespace stagecoach
