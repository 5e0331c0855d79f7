#pragma once
/// @file
/// Makes batches. The contents of a batch depend only on the dataset, the settings, the epoch and the batch's index.

#include <cstdint>
#include <vector>

#include "datasets/loader.h"
#include "datasets/resize.h"

namespace stagecoach {

/// Immutable, so any number of threads may use it.
class BatchMaker {
 public:
  /// Throws UsageError for invalid settings.
  BatchMaker(Dataset dataset, const LoaderSettings& settings);

  /// Returns the number of batches in an epoch; the last one may be smaller.
  std::int64_t batch_count() const;
  /// Returns the order of the samples in `epoch`: [size of the dataset].
  std::vector<std::uint32_t> order(std::int64_t epoch) const;
  /// Returns this shard's part of batch `index`, given the epoch's order, in CPU memory suitable for copies to
  /// `device`; see staging_tensor.
  Batch make(const std::vector<std::uint32_t>& order, std::int64_t epoch, std::int64_t index, Device device) const;

 private:
  void check() const;

  Dataset dataset_;
  LoaderSettings settings_;
  ImageSize stored_;  // of the dataset's images
  ImageSize made_;    // of the batch's images
};

}  // namespace stagecoach
