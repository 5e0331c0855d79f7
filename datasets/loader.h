#pragma once
/// @file
/// A dataset in batches, epoch by epoch. Which sample is in which batch, and how it is augmented, follows from the
/// seed, the epoch and the sample alone: never from the shards, the threads, or where a run was resumed.

#include <cstdint>
#include <memory>
#include <optional>

#include "datasets/dataset.h"

namespace stagecoach {

struct LoaderSettings {
  std::int64_t batch_size = 64;  ///< of the whole batch, over all shards
  std::uint64_t seed = 0;
  bool shuffle = true;          ///< a new order each epoch, or always the stored one
  bool augment = false;         ///< random crops and mirror images, for training
  int shard = 0;                ///< which part of each batch this loader makes …
  int shards = 1;               ///< … of how many
  std::int64_t image_size = 0;  ///< rows and columns to resize to; 0: as stored
  bool images = true;           ///< or labels alone, with images [n, 3, 0, 0]
  bool prefetch = true;         ///< make the next batches on a thread; the batches are the same without
};

struct Batch {
  Tensor images;                 ///< uint8 [n, 3, H, W]; n may be 0 when there are more shards than samples
  Tensor labels;                 ///< int32 [n]
  std::int64_t index = 0;        ///< in this epoch
  std::int64_t global_size = 0;  ///< samples of the whole batch over all shards
};

class BatchMaker;
class Prefetcher;

/// One thread at a time may use a loader. It shares the dataset's memory.
class Loader {
 public:
  /// Throws UsageError for a batch size below 1, a shard outside the shards, an image size that is negative or beyond
  /// 4096, or an empty dataset.
  Loader(Dataset dataset, LoaderSettings settings);
  ~Loader();
  Loader(Loader&& other) noexcept;
  Loader& operator=(Loader&& other) noexcept;

  /// Batches of later epochs are made in CPU memory from which `device` can copy while the CPU goes on.
  void stage_for(Device device) { device_ = device; }
  /// Batches in an epoch, the ragged last one included.
  std::int64_t batches() const;
  /// Begins `epoch` at batch `first_batch` (to resume); an epoch that is under way is left. `first_batch` may be
  /// batches(): then nothing is left of the epoch. Throws UsageError beyond that.
  void start_epoch(std::int64_t epoch, std::int64_t first_batch = 0);
  /// The next batch, or nothing after the epoch's last. Throws Error before the first start_epoch.
  std::optional<Batch> next();
  /// Seconds, in all, in which next() waited for the thread that makes the batches; 0 without one.
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
