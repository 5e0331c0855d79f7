#include "core/asynchronous.h"

#include <array>
#include <atomic>

#include "core/base/error.h"
#include "core/kernel_meter.h"

namespace stagecoach {
namespace {

/// The streams of one device. They are never destroyed, since events and the uses of memory refer to them.
struct Streams {
  explicit Streams(Device device) : compute({device, Stream::kCompute}), copies({device, Stream::kCopies}) {}
  CallQueue compute;
  CallQueue copies;
};

std::array<std::atomic<bool>, kMaxDevices> are_on{};
std::array<Streams*, kMaxDevices> streams{};
std::atomic<int> stream_of_copies{Stream::kCopies};

Streams& streams_of(Device device) { return *streams[static_cast<std::size_t>(device.index)]; }

}  // namespace

// An object exists once the private constructor is done, so the destructor undoes what was done before an exception.
AsynchronousDevices::AsynchronousDevices(const std::vector<Device>& devices, int copy_stream) : AsynchronousDevices() {
  copy_stream_before_ = stream_of_copies.exchange(copy_stream);
  for (const Device device : devices) {
    require_device(device);
    STAGECOACH_CHECK(device.type == DeviceType::cpu && !is_asynchronous(device),
                     "asynchronous devices: expected CPU devices that are synchronous so far, got {}",
                     to_string(device));
    Streams*& made = streams[static_cast<std::size_t>(device.index)];
    if (made == nullptr) {
      made = new Streams(device);
    }
    devices_.push_back(device);
    made->compute.start();
    made->copies.start();
    are_on[static_cast<std::size_t>(device.index)] = true;
  }
}

AsynchronousDevices::~AsynchronousDevices() {
  finish_queued_calls();  // of all devices first, since the calls of one may wait for those of another
  for (const Device device : devices_) {
    are_on[static_cast<std::size_t>(device.index)] = false;
    streams_of(device).compute.stop();
    streams_of(device).copies.stop();
  }
  stream_of_copies = copy_stream_before_;
}

bool is_asynchronous(Device device) {
  const auto index = static_cast<std::size_t>(device.index);
  return device.type == DeviceType::cpu && index < are_on.size() && are_on[index] && !CallQueue::is_running_call();
}

int copy_stream() { return stream_of_copies; }

CallQueue& call_queue(const Stream& stream) {
  STAGECOACH_CHECK(stream.id == Stream::kCompute || stream.id == Stream::kCopies,
                   "stream {} of {} does not exist: expected {} (compute) or {} (copies)", stream.id,
                   to_string(stream.device), Stream::kCompute, Stream::kCopies);
  Streams& found = streams_of(stream.device);
  return stream.id == Stream::kCompute ? found.compute : found.copies;
}

void finish_queued_calls() {
  if (KernelMeter* meter = KernelMeter::current()) {
    meter->wait_for({});
  }
  for (std::size_t i = 0; i < are_on.size(); ++i) {
    if (are_on[i]) {
      streams[i]->compute.finish();
      streams[i]->copies.finish();
    }
  }
}

}  // namespace stagecoach
