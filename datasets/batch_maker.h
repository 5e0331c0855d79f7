#pragma once
/// @file
/// Makes batches. The contents of a batch depend only on the samples, the settings, the epoch and the batch's index.

#include <cstdint>
#include <memory>
#include <vector>

#include "datasets/loader.h"
#include "datasets/resize.h"
#include "datasets/sample_source.h"

namespace stagecoach {

/// Immutable, so any number of threads may use it.
class BatchMaker {
 public:
  /// Throws UsageError for invalid settings.
  BatchMaker(std::shared_ptr<const SampleSource> samples, LoaderSettings settings);

  /// Returns the number of batches in an epoch; the last one may be smaller.
  std::int64_t batch_count() const;
  /// Returns the order of the samples in `epoch`: [number of samples].
  std::vector<std::uint32_t> order(std::int64_t epoch) const;
  /// Returns this shard's part of batch `index`, given the epoch's order, in CPU memory suitable for copies to
  /// `device`; see staging_tensor.
  Batch make(const std::vector<std::uint32_t>& order, std::int64_t epoch, std::int64_t index, Device device) const;
  /// See Loader.
  Batch copy_to(Device device) const;
  bool is_on_device() const { return settings_.on_device; }

 private:
  void check() const;
  /// Writes row `row` of a batch: sample `sample`.
  void put_sample(std::int64_t sample, const SampleRandom& random, Batch& batch, std::int64_t row) const;
  /// Writes row `row` of a batch of crops.
  void put_crop(std::int64_t sample, const SampleRandom& random, Batch& batch, std::int64_t row) const;
  /// Reads an image, augments and resizes it: input uint8 [3, H, W] of the batch's size.
  void read_image(std::int64_t sample, const SampleRandom& random, Tensor& input, Tensor& target) const;

  std::shared_ptr<const SampleSource> samples_;
  LoaderSettings settings_;
  SampleType stored_;  // the input of a sample as it is read
  SampleType made_;    // the input of a sample as it is in a batch
};

}  // namespace stagecoach
