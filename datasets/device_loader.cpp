#include "datasets/device_loader.h"

#include <utility>

#include "core/transfer.h"

namespace stagecoach {

DeviceLoader::DeviceLoader(Loader loader, Device device) : loader_(std::move(loader)), device_(device) {}

void DeviceLoader::start_epoch(std::int64_t epoch, std::int64_t first_batch) {
  loader_.start_epoch(epoch, first_batch);
  begun_ = false;
}

std::optional<Batch> DeviceLoader::next() {
  if (device_.type == DeviceType::cpu) {
    std::optional<Batch> batch = loader_.next();
    if (batch) {
      batch->images = batch->images.seen_from(device_);
      batch->labels = batch->labels.seen_from(device_);
    }
    return batch;
  }
  if (!std::exchange(begun_, true)) {
    fill(slots_[present_]);
  }
  const Slot& slot = slots_[present_];
  if (!slot.batch) {
    return std::nullopt;
  }
  slot.arrived.wait({device_, Stream::kCompute});
  present_ = 1 - present_;
  // The work that still reads the other slot has been given to the device, and the copy comes after it.
  fill(slots_[present_]);
  return slot.batch;
}

void DeviceLoader::fill(Slot& slot) {
  const std::optional<Batch> batch = loader_.next();
  slot.batch.reset();
  if (!batch) {
    return;
  }
  const std::int64_t count = batch->images.size(0);
  if (!slot.images_here.defined() || slot.images_here.size(0) < count) {
    slot.images_here = staging_tensor(batch->images.shape(), DType::uint8, device_);
    slot.labels_here = staging_tensor(batch->labels.shape(), DType::int32, device_);
    slot.images_there = Tensor::empty(batch->images.shape(), DType::uint8, device_);
    slot.labels_there = Tensor::empty(batch->labels.shape(), DType::int32, device_);
  } else {
    slot.arrived.synchronize();  // the copy before this one has been read to its end
  }
  slot.images_here.narrow(0, count).copy_from(batch->images);
  slot.labels_here.narrow(0, count).copy_from(batch->labels);
  slot.batch =
      Batch{slot.images_there.narrow(0, count), slot.labels_there.narrow(0, count), batch->index, batch->global_size};
  copy_async(slot.images_here.narrow(0, count), slot.batch->images);
  slot.arrived = copy_async(slot.labels_here.narrow(0, count), slot.batch->labels);
}

}  // namespace stagecoach
