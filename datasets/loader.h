#pragma once
/// @file
/// Loads a dataset in batches, epoch by epoch. Which sample is in which batch, and how it is augmented, depends only on
/// the seed, the epoch and the sample: never on the shards, the threads, or where a run was resumed.

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "datasets/dataset.h"
#include "datasets/sample_source.h"

namespace stagecoach {

struct LoaderSettings {
  std::int64_t batch_size = 64;  ///< of the whole batch, over all shards
  std::uint64_t seed = 0;
  bool shuffle = true;          ///< a new order in each epoch; false: the stored order
  bool augment = false;         ///< images only: random crops and mirror images, for training
  int shard = 0;                ///< index of the part of each batch that this loader makes
  int shards = 1;               ///< number of these parts
  std::int64_t image_size = 0;  ///< images only: rows and columns to resize to; 0: as stored
  bool inputs = true;           ///< false: only targets, with inputs [n, 0]
  /// For a DeviceLoader, which then copies all samples to its device once, and batches there. The loader itself says
  /// which samples: inputs and targets are crops, int32 [n, 4] (Kernels::gather).
  bool on_device = false;
  bool prefetch = true;      ///< makes the next batches on a thread; does not change the batches
  Transform transform = {};  ///< of each sample, after augmentation and resizing; may run on several threads
};

struct Batch {
  Tensor inputs;   ///< [n, …], such as images uint8 [n, 3, H, W]; n may be 0 when there are more shards than samples
  Tensor targets;  ///< [n, …], such as labels int32 [n]
  std::int64_t index = 0;        ///< of the batch in its epoch
  std::int64_t global_size = 0;  ///< samples of the whole batch, over all shards
};

/// Returns what a model takes: images, uint8 [n, 3, H, W], as floats from -1 to 1 (normalize in core/ops.h), and other
/// inputs, such as tokens or vectors, as they are.
Tensor model_input(const Tensor& inputs);

class BatchMaker;
class Prefetcher;

/// One thread at a time may use a loader. It shares the dataset's memory.
class Loader {
 public:
  /// Throws UsageError for a batch size below 1, a shard outside the shards, an image size that is negative or beyond
  /// 4096, an empty dataset, settings of images for samples that are none, a transform without inputs, and on_device
  /// with what a device cannot do: a transform, or resizing after augmentation.
  Loader(const Dataset& dataset, LoaderSettings settings) : Loader(samples_of(dataset), std::move(settings)) {}
  Loader(std::shared_ptr<const SampleSource> samples, LoaderSettings settings);
  ~Loader();
  Loader(Loader&& other) noexcept;
  Loader& operator=(Loader&& other) noexcept;

  /// From the next epoch on, makes batches in CPU memory from which `device` can copy asynchronously.
  void stage_for(Device device) { device_ = device; }
  /// Returns all samples on `device`, resized: inputs [N, …] (undefined if only targets are wanted) and targets [N, …].
  /// Throws DataError if a CPU has too little memory, and Error if a GPU has.
  Batch copy_to(Device device) const;
  bool is_on_device() const;
  /// Returns the number of batches in an epoch, including a smaller last one.
  std::int64_t batch_count() const;
  /// Begins `epoch` at batch `first_batch` (to resume); the current epoch, if any, is abandoned. If `first_batch` is
  /// batch_count(), no batches are left. Throws UsageError for a larger one.
  void start_epoch(std::int64_t epoch, std::int64_t first_batch = 0);
  /// Returns the next batch, or nothing after the epoch's last. Throws Error before the first start_epoch.
  std::optional<Batch> next();
  /// Returns the total seconds that next() waited for the thread that makes the batches; 0 without such a thread.
  double waited() const { return waited_; }

 private:
  struct Epoch;

  std::unique_ptr<const BatchMaker> maker_;
  bool prefetch_ = true;
  Device device_;
  double waited_ = 0;
  std::unique_ptr<Epoch> epoch_;  // after maker_: its thread uses it
};

}  // namespace stagecoach
