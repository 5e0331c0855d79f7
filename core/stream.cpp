#include "core/stream.h"

#include "core/asynchronous.h"
#include "core/base/error.h"
#include "core/cuda_backend.h"
#include "core/kernel_meter.h"
#include "core/stream_order.h"

namespace stagecoach {

void synchronize(const Stream& stream) {
  require_device(stream.device);
  if (stream.device.type == DeviceType::cuda) {
    cuda::synchronize(stream);
  } else if (is_asynchronous(stream.device)) {
    wait_for_point(*mark_point(stream));
  } else if (KernelMeter* meter = KernelMeter::current()) {
    meter->wait_for(stream.device);
  }
}

void Event::record(const Stream& stream) {
  if (stream.device.type == DeviceType::cpu) {
    require_device(stream.device);  // on a GPU, the mark checks this
  }
  stream_ = stream;
  mark_ = stream.device.type == DeviceType::cuda ? cuda::mark(stream) : nullptr;
  point_ = is_asynchronous(stream.device) ? mark_point(stream) : nullptr;
  recorded_ = true;
}

void Event::wait(const Stream& stream) const {
  STAGECOACH_CHECK(recorded_, "event: cannot let {} wait for an event that was never recorded; call record() first",
                   to_string(stream.device));
  if (mark_ != nullptr && stream.device.type == DeviceType::cuda) {
    cuda::wait(*mark_, stream);
  } else if (point_ != nullptr && is_asynchronous(stream.device)) {
    wait_in_stream(*point_, stream);
  } else {
    synchronize();
  }
}

void Event::synchronize() const {
  STAGECOACH_CHECK(recorded_, "event: cannot synchronize with an event that was never recorded; call record() first");
  if (mark_ != nullptr) {
    cuda::synchronize(*mark_);
  } else if (point_ != nullptr) {
    wait_for_point(*point_);
  }
}

}  // namespace stagecoach
