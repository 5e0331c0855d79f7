#pragma once
/// @file
/// The data of training steps, dealt to the ranks of a pipeline: pictures where the first stage is, labels where the
/// last one is. The loaders of both have the same order, so that a picture meets its own label.

#include <cstdint>
#include <optional>
#include <vector>

#include "core/tensor.h"
#include "datasets/device_loader.h"
#include "datasets/shares.h"

namespace stagecoach {

/// One batch, or a shard of one, in micro-batches, as one rank sees it.
struct Step {
  std::vector<std::int64_t> sizes;  ///< pictures of each micro-batch
  std::int64_t pictures = 0;        ///< of the whole batch
  std::vector<Tensor> images;       ///< uint8 [n, 3, H, W] each, where the first stage is
  std::vector<Tensor> labels;       ///< int32 [n] each, where the last stage is
};

class StepLoader {
 public:
  enum class Needs { nothing, data };  ///< whether the rank holds the first or the last stage

  /// `loader` makes `shard` of batches of `batch_size` from `samples` pictures. That is cut into `microbatches` parts,
  /// or into single pictures where it has fewer.
  StepLoader(Loader loader, std::int64_t samples, std::int64_t batch_size, std::int64_t microbatches, Device device,
             Needs needs, const Shard& shard = {});

  /// As in Loader.
  std::int64_t batches() const { return loader_.batches(); }
  void start_epoch(std::int64_t epoch, std::int64_t first_batch = 0);
  std::optional<Step> next();
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
