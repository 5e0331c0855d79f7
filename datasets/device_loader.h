#pragma once
/// @file
/// A loader whose batches are on a device.
///
/// On the modelled clock (parallel/comm/clock.h) one batch is loaded ahead, beside the step with the batch before it:
/// the host prepares it, at DeviceModel::load_bytes_per_second, and then copies it to the device, at
/// host_bytes_per_second. If a step asks for a batch that is not there yet, the rank waits for it, and is idle. The
/// first batch of an epoch is loaded from the epoch's start, so the rank always waits for it. The bytes are those of
/// the inputs (images: as uint8 in the size that the model takes) and of the targets.
///
/// With LoaderSettings::on_device the first start_epoch copies the data set to the device, which takes as long as to
/// load all samples, and then gathers each batch there: only which samples it has, and how they are cropped, is loaded.
/// The batches have the same bytes.

#include <array>
#include <optional>

#include "core/stream.h"
#include "datasets/loader.h"

namespace stagecoach {

/// For a GPU, copies the next batch while the GPU works on the current one; for a CPU, returns batches as they are. One
/// thread at a time may use it.
class DeviceLoader {
 public:
  DeviceLoader(Loader loader, Device device);

  /// As in Loader; with on_device, the first start_epoch throws as Loader::copy_to does.
  std::int64_t batch_count() const { return loader_.batch_count(); }
  void start_epoch(std::int64_t epoch, std::int64_t first_batch = 0);
  /// Returns the next batch, or nothing after the epoch's last. On a GPU its tensors are valid for work that is given
  /// to the device before the next call: after that work their memory is reused for another batch.
  std::optional<Batch> next();
  /// As in Loader. (On a GPU next() also waits until the GPU has caught up; that is not counted.)
  double waited() const { return loader_.waited(); }

 private:
  /// A batch that is being copied to the GPU, and the GPU memory for the copy.
  struct Slot {
    std::optional<Batch> here;  // kept until the copy is done
    Tensor inputs;
    Tensor targets;
    Event arrived;
    std::optional<Batch> there;  // views of the two tensors
  };

  std::optional<Batch> next_loaded();
  void fill(Slot& slot);

  Loader loader_;
  Device device_;
  std::optional<Batch> all_;  // the data set, if it is on the device
  std::array<Slot, 2> slots_;
  std::size_t present_ = 0;
  bool begun_ = false;
};

}  // namespace stagecoach
