#pragma once
/// @file
/// What is in each batch of each epoch: a pure function of the dataset, the settings, the epoch and the batch.

#include <cstdint>
#include <vector>

#include "datasets/loader.h"
#include "datasets/resize.h"

namespace stagecoach {

/// Never changes once it is made, so any number of threads may use it.
class BatchMaker {
 public:
  /// Throws UsageError for settings that cannot be followed.
  BatchMaker(Dataset dataset, const LoaderSettings& settings);

  /// Batches in an epoch; the last one may be smaller.
  std::int64_t batches() const;
  /// Which sample comes when in `epoch`: [size of the dataset].
  std::vector<std::uint32_t> order(std::int64_t epoch) const;
  /// This shard's part of batch `index`, given the epoch's order, in CPU memory that suits `device`; see
  /// staging_tensor.
  Batch make(const std::vector<std::uint32_t>& order, std::int64_t epoch, std::int64_t index, Device device) const;

 private:
  void check() const;

  Dataset dataset_;
  LoaderSettings settings_;
  ImageSize stored_;  // of the dataset's images
  ImageSize made_;    // of the batch's images
};

}  // namespace stagecoach
