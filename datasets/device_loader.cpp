#include "datasets/device_loader.h"

#include <utility>

#include "core/kernel_meter.h"
#include "core/kernels/kernels.h"
#include "core/transfer.h"

namespace stagecoach {
namespace {

std::int64_t bytes_of(const Batch& batch) {
  return static_cast<std::int64_t>((batch.inputs.defined() ? batch.inputs.bytes() : 0) + batch.targets.bytes());
}

/// Returns the samples that `crops` describes, of `all` [N, …] on its device.
Tensor gather(const Tensor& all, const Tensor& crops) {
  if (!all.defined()) {
    return crops;  // of targets alone, the inputs are [n, 0]
  }
  Tensor out = Tensor::empty(all.shape().with(0, crops.size(0)), all.dtype(), all.device());
  const auto as_images = [dims = all.dims()](const Tensor& t) {  // [N, planes, rows, columns], of vectors one row each
    return t.alias(
        {t.size(0), t.shape().product(1, dims - 2), dims > 2 ? t.size(dims - 2) : 1, dims > 1 ? t.size(dims - 1) : 1},
        t.offset());
  };
  Tensor images = as_images(out);
  kernels(all.device()).gather(as_images(all), crops, images);
  return out;
}

}  // namespace

DeviceLoader::DeviceLoader(Loader loader, Device device) : loader_(std::move(loader)), device_(device) {
  loader_.stage_for(device);
}

void DeviceLoader::start_epoch(std::int64_t epoch, std::int64_t first_batch) {
  if (loader_.is_on_device() && !all_) {
    all_ = loader_.copy_to(device_);
    if (KernelMeter* meter = KernelMeter::current()) {
      meter->take_batch(0);
      meter->take_batch(bytes_of(*all_));
    }
  }
  loader_.start_epoch(epoch, first_batch);
  begun_ = false;
  if (KernelMeter* meter = KernelMeter::current()) {
    meter->take_batch(0);
  }
}

std::optional<Batch> DeviceLoader::next() {
  std::optional<Batch> batch = next_loaded();
  if (batch && all_) {
    batch->inputs = gather(all_->inputs, batch->inputs);
    batch->targets = gather(all_->targets, batch->targets);
  }
  return batch;
}

std::optional<Batch> DeviceLoader::next_loaded() {
  if (device_.type == DeviceType::cpu) {
    std::optional<Batch> batch = loader_.next();
    if (batch) {
      batch->inputs = batch->inputs.seen_from(device_);
      batch->targets = batch->targets.seen_from(device_);
      if (KernelMeter* meter = KernelMeter::current()) {
        meter->take_batch(bytes_of(*batch));
      }
    }
    return batch;
  }
  if (!std::exchange(begun_, true)) {
    fill(slots_[present_]);
  }
  const Slot& slot = slots_[present_];
  if (!slot.there) {
    return std::nullopt;
  }
  slot.arrived.wait({device_, Stream::kCompute});
  present_ = 1 - present_;
  // The device already has the work that still reads this slot, and runs the copy after it.
  fill(slots_[present_]);
  return slot.there;
}

void DeviceLoader::fill(Slot& slot) {
  std::optional<Batch> batch = loader_.next();
  if (slot.here) {
    slot.arrived.synchronize();  // the previous copy from this slot is done
  }
  slot.here = std::move(batch);
  slot.there.reset();
  if (!slot.here) {
    return;
  }
  const Batch& here = *slot.here;
  const std::int64_t count = here.inputs.size(0);
  if (!slot.inputs.defined() || slot.inputs.size(0) < count) {
    slot.inputs = Tensor::empty(here.inputs.shape(), here.inputs.dtype(), device_);
    slot.targets = Tensor::empty(here.targets.shape(), here.targets.dtype(), device_);
  }
  slot.there = Batch{slot.inputs.narrow(0, count), slot.targets.narrow(0, count), here.index, here.global_size};
  copy_async(here.inputs, slot.there->inputs);
  slot.arrived = copy_async(here.targets, slot.there->targets);
}

}  // namespace stagecoach
