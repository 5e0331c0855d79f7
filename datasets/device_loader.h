#pragma once
/// @file
/// A loader whose batches are on a device.

#include <array>
#include <optional>

#include "core/stream.h"
#include "datasets/loader.h"

namespace stagecoach {

/// The next batch is copied to a GPU while the GPU works on the present one; on a CPU batches are handed on as they
/// are. One thread at a time may use it.
class DeviceLoader {
 public:
  DeviceLoader(Loader loader, Device device);

  /// As in Loader.
  std::int64_t batches() const { return loader_.batches(); }
  void start_epoch(std::int64_t epoch, std::int64_t first_batch = 0);
  /// The next batch, or nothing after the epoch's last. On a GPU its tensors are for work that is given to the device
  /// before the next call, which lets their memory take another batch once that work is done.
  std::optional<Batch> next();
  /// As in Loader. (On a GPU next() also waits until the GPU has caught up; that is not counted.)
  double waited() const { return loader_.waited(); }

 private:
  /// A batch that is being copied to the GPU, and the GPU memory that it is copied to.
  struct Slot {
    std::optional<Batch> here;  // kept until it has arrived
    Tensor images;
    Tensor labels;
    Event arrived;
    std::optional<Batch> there;  // views of the two tensors
  };

  void fill(Slot& slot);

  Loader loader_;
  Device device_;
  std::array<Slot, 2> slots_;
  std::size_t present_ = 0;
  bool begun_ = false;
};

}  // namespace stagecoach
