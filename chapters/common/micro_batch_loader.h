#pragma once
/// @file
/// Loads batches as micro-batches for the ranks of a pipeline: inputs on the first stage, targets on the last. The
/// loaders of all ranks have the same order, so that inputs and targets match.

#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "chapters/common/open.h"
#include "core/tensor.h"
#include "datasets/device_loader.h"
#include "datasets/shares.h"
#include "nn/batch_position.h"

namespace stagecoach {

/// One batch, or a rank's shard of it, as one rank sees it.
struct MicroBatches {
  std::vector<std::int64_t> sizes = {};  ///< images of each micro-batch
  std::int64_t global_size = 0;          ///< images of the whole batch
  std::vector<Tensor> inputs = {};       ///< images uint8 [n, 3, H, W] each, on ranks that hold the first stage
  std::vector<Tensor> targets = {};      ///< labels int32 [n] each, on ranks that hold the last stage

  /// Where its first sample is, for dropout; none without it: GPUs then record forwards.
  std::optional<BatchPosition> position = {};

  int count() const { return static_cast<int>(sizes.size()); }
  /// Returns where the first sample of a micro-batch is.
  std::optional<BatchPosition> position_of(int microbatch) const {
    std::optional<BatchPosition> at = position;
    if (at) {
      at->first += std::accumulate(sizes.begin(), sizes.begin() + microbatch, std::int64_t{0});
    }
    return at;
  }
  /// Returns what the model takes of a micro-batch (model_input): images as floats from -1 to 1, [n, 3, H, W].
  Tensor input(int microbatch) const { return model_input(inputs[static_cast<std::size_t>(microbatch)]); }
  /// Returns its targets, such as labels [n].
  const Tensor& target(int microbatch) const { return targets[static_cast<std::size_t>(microbatch)]; }
};

class MicroBatchLoader {
 public:
  /// What a rank needs of a batch: inputs if it holds the first stage, targets if it holds the last one.
  enum class Needs { nothing, targets, inputs_and_targets };

  /// Loads `shard` of each batch of `data`. It is split into `microbatches` parts, or into single images if it has
  /// fewer.
  MicroBatchLoader(const Settings& settings, const Dataset& data, LoaderFor purpose, Device device, Needs needs,
                   std::int64_t microbatches, const Shard& shard = {});

  /// As in Loader.
  std::int64_t batch_count() const { return loader_.batch_count(); }
  /// Returns the images of an epoch, over all ranks.
  std::int64_t image_count() const { return samples_; }
  void start_epoch(std::int64_t epoch, std::int64_t first_batch = 0);
  std::optional<MicroBatches> next();
  double waited() const { return loader_.waited(); }
  /// Loads batch `index` of each epoch and does not return it, which is a mistake to show.
  void leave_out(std::int64_t index) { left_out_ = index; }

 private:
  DeviceLoader loader_;
  std::int64_t samples_;
  std::int64_t batch_size_;
  std::int64_t microbatches_;
  Needs needs_;
  Shard shard_;
  bool has_dropout_;
  std::int64_t epoch_ = 1;
  std::int64_t next_batch_ = 0;
  std::int64_t left_out_ = -1;
};

}  // namespace stagecoach
